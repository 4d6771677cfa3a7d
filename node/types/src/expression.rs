//! Expressions that select disks and volumes. People see their text, typed clients their syntax tree.

use std::collections::HashMap;

use cel::common::ast::{Expr, LiteralValue};
use cel::parser::Expression as Parsed;
use corten_api::google::api::expr::v1alpha1 as wire;
use corten_values::on_reader;
use serde::Serialize;

/// Maximum nesting of the syntax tree. Many protobuf decoders stop at depth 100, and a node of the tree takes two
/// levels. Deeper expressions have no tree in the message.
const DEPTH: u8 = 48;

/// A Boolean expression over a disk or volume in the Common Expression Language (CEL); empty if there is none. The text
/// is parsed only once, because each parse takes a thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Expression {
    text: String,
    #[serde(skip)]
    parts: Option<wire::CheckedExpr>,
}

impl Expression {
    /// Parses the text, which may be empty.
    ///
    /// # Errors
    /// A syntax error or a failure to parse now; the message contains the text.
    pub fn read(text: &str) -> Result<Expression, String> {
        if text.is_empty() {
            return Ok(Expression::default());
        }
        let root = on_reader(text, |parsed| message(parsed, DEPTH))
            .map_err(|why| format!("expression {text:?}: {why}"))?;
        Ok(Expression {
            text: text.to_owned(),
            parts: root.map(checked),
        })
    }

    /// `name`, without a parse: the first parse builds the parser's tables, which a node without selectors never needs.
    #[must_use]
    pub fn of_name(name: &str) -> Expression {
        Expression {
            text: name.to_owned(),
            parts: Some(checked(name_expr(1, name))),
        }
    }

    /// `object.field == "value"`, without a parse. The value has no quote and no backslash.
    #[must_use]
    pub fn of_field(object: &str, field: &str, value: &str) -> Expression {
        use wire::expr::{Call, ExprKind, Select};
        let select = Select {
            operand: Some(Box::new(name_expr(1, object))),
            field: field.to_owned(),
            test_only: false,
        };
        let text = wire::constant::ConstantKind::StringValue(value.to_owned());
        let text = ExprKind::ConstExpr(wire::Constant {
            constant_kind: Some(text),
        });
        let equals = Call {
            target: None,
            function: "_==_".to_owned(),
            args: vec![
                node(2, ExprKind::SelectExpr(Box::new(select))),
                node(4, text),
            ],
        };
        Expression {
            text: format!("{object}.{field} == \"{value}\""),
            parts: Some(checked(node(3, ExprKind::CallExpr(Box::new(equals))))),
        }
    }

    /// The syntax tree; `None` if the expression is empty or too deep.
    #[must_use]
    pub fn message(&self) -> Option<wire::CheckedExpr> {
        self.parts.clone()
    }
}

fn name_expr(id: i64, name: &str) -> wire::Expr {
    use wire::expr::{ExprKind, Ident};
    let name = name.to_owned();
    node(id, ExprKind::IdentExpr(Ident { name }))
}

fn node(id: i64, kind: wire::expr::ExprKind) -> wire::Expr {
    wire::Expr {
        id,
        expr_kind: Some(kind),
    }
}

/// Wraps the root with its result type, which clients require.
fn checked(root: wire::Expr) -> wire::CheckedExpr {
    let boolean = wire::Type {
        type_kind: Some(wire::r#type::TypeKind::Primitive(
            wire::r#type::PrimitiveType::Bool.into(),
        )),
    };
    wire::CheckedExpr {
        type_map: HashMap::from([(root.id, boolean)]),
        expr: Some(root),
    }
}

/// Converts a node of the tree. Functions and operators have the same names on both sides.
fn message(part: &Parsed, depth: u8) -> Option<wire::Expr> {
    use wire::expr::{Call, CreateList, ExprKind, Ident, Select};
    let depth = depth.checked_sub(1)?;
    let inner = |part: &Parsed| message(part, depth);
    let kind = match &part.expr {
        Expr::Literal(value) => ExprKind::ConstExpr(constant(value)),
        Expr::Ident(name) => ExprKind::IdentExpr(Ident { name: name.clone() }),
        Expr::Select(select) => ExprKind::SelectExpr(Box::new(Select {
            operand: Some(Box::new(inner(&select.operand)?)),
            field: select.field.clone(),
            test_only: select.test,
        })),
        Expr::Call(call) => {
            let target = match &call.target {
                Some(target) => Some(Box::new(inner(target)?)),
                None => None,
            };
            let args: Option<Vec<_>> = call.args.iter().map(inner).collect();
            ExprKind::CallExpr(Box::new(Call {
                target,
                function: call.func_name.clone(),
                args: args?,
            }))
        }
        Expr::List(list) => {
            let elements: Option<Vec<_>> = list.elements.iter().map(inner).collect();
            ExprKind::ListExpr(CreateList {
                elements: elements?,
            })
        }
        // The config rejects expressions with loops and maps.
        Expr::Comprehension(_) | Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => return None,
    };
    Some(node(part.id.try_into().ok()?, kind))
}

fn constant(value: &LiteralValue) -> wire::Constant {
    use wire::constant::ConstantKind;
    let kind = match value {
        LiteralValue::Boolean(value) => ConstantKind::BoolValue(*value.inner()),
        LiteralValue::Bytes(value) => ConstantKind::BytesValue(value.inner().to_vec()),
        LiteralValue::Double(value) => ConstantKind::DoubleValue(*value.inner()),
        LiteralValue::Int(value) => ConstantKind::Int64Value(*value.inner()),
        LiteralValue::Null => ConstantKind::NullValue(0),
        LiteralValue::String(value) => ConstantKind::StringValue(value.inner().to_owned()),
        LiteralValue::UInt(value) => ConstantKind::Uint64Value(*value.inner()),
    };
    wire::Constant {
        constant_kind: Some(kind),
    }
}

#[cfg(test)]
mod tests {
    use wire::constant::ConstantKind;
    use wire::expr::ExprKind;

    use super::*;

    fn kind(expr: &wire::Expr) -> &ExprKind {
        expr.expr_kind.as_ref().unwrap()
    }

    fn parts(text: &str) -> Option<wire::CheckedExpr> {
        Expression::read(text).unwrap().message()
    }

    #[test]
    fn expressions_without_a_parse_are_those_of_the_parser() {
        let name = Expression::of_name("system_disk");
        assert_eq!(name, Expression::read("system_disk").unwrap());
        let field = Expression::of_field("volume", "partition_label", "u-data");
        let text = "volume.partition_label == \"u-data\"";
        assert_eq!(field, Expression::read(text).unwrap());
    }

    #[test]
    fn expression_is_shown_as_text_and_sent_as_a_syntax_tree() {
        let text = "!system_disk && disk.size > 10u * GiB";
        let expression = Expression::read(text).unwrap();
        let shown = serde_json::to_value(&expression).unwrap();
        assert_eq!(shown, text);
        let checked = expression.message().unwrap();
        let root = checked.expr.unwrap();
        assert!(root.id != 0 && checked.type_map.contains_key(&root.id));
        let ExprKind::CallExpr(and) = kind(&root) else {
            panic!("{root:?}");
        };
        assert_eq!((&*and.function, and.args.len()), ("_&&_", 2));
        let ExprKind::CallExpr(not) = kind(&and.args[0]) else {
            panic!("{and:?}");
        };
        assert_eq!(not.function, "!_");
        let ExprKind::CallExpr(greater) = kind(&and.args[1]) else {
            panic!("{and:?}");
        };
        assert_eq!(greater.function, "_>_");
        let ExprKind::SelectExpr(size) = kind(&greater.args[0]) else {
            panic!("{greater:?}");
        };
        assert_eq!((&*size.field, size.test_only), ("size", false));
        let ExprKind::CallExpr(product) = kind(&greater.args[1]) else {
            panic!("{greater:?}");
        };
        let ExprKind::ConstExpr(ten) = kind(&product.args[0]) else {
            panic!("{product:?}");
        };
        assert_eq!(ten.constant_kind, Some(ConstantKind::Uint64Value(10)));
        // Ids of nodes are unique.
        assert_ne!(and.args[0].id, and.args[1].id);
    }

    #[test]
    fn syntax_tree_has_lists_and_targets_of_member_functions() {
        let root = parts("disk.transport in ['nvme', 'sata']").unwrap();
        let root = root.expr.unwrap();
        let ExprKind::CallExpr(is_in) = kind(&root) else {
            panic!("{root:?}");
        };
        assert_eq!(is_in.function, "@in");
        let ExprKind::ListExpr(list) = kind(&is_in.args[1]) else {
            panic!("{is_in:?}");
        };
        assert_eq!(list.elements.len(), 2);
        let root = parts("disk.model.startsWith('QEMU')").unwrap();
        let root = root.expr.unwrap();
        let ExprKind::CallExpr(starts) = kind(&root) else {
            panic!("{root:?}");
        };
        assert!(starts.target.is_some() && starts.args.len() == 1);
    }

    #[test]
    fn hostile_expressions_have_no_syntax_tree_or_are_refused() {
        let sum = vec!["1"; 500].join("+") + " > 0";
        for text in ["", "[1].all(x, x > 0)", "{1: 2}", &sum] {
            assert_eq!(parts(text), None, "{text}");
        }
        let brackets = "(".repeat(100) + "true" + &")".repeat(100);
        let long = "1".repeat(1025);
        for (text, why) in [
            ("&&", "line 1"),
            (&*brackets, "24 levels"),
            (&*long, "1024 bytes"),
        ] {
            let refused = Expression::read(text).unwrap_err();
            assert!(refused.contains(why) && refused.contains(text), "{refused}");
        }
    }
}
