//! Expressions that choose disks and volumes, as the messages of typed clients have them: taken apart.

use std::collections::HashMap;
use std::thread;

use cel::common::ast::{Expr, LiteralValue};
use cel::parser::{Expression as Parsed, Parser};
use corten_api::google::api::expr::v1alpha1 as wire;

/// Of brackets and calls inside each other; the config lets no more in.
const BRACKETS: u16 = 24;

/// Of parts inside each other. Most who decode messages stop at a hundred, and a part takes two; a sum of so
/// many numbers is left out.
const DEPTH: u8 = 48;

/// The config lets sums in that are deep; each level takes some of it.
const STACK: usize = 128 << 20;

/// What is true or false, of its text; none of an empty text and of one that is no expression.
pub(super) fn checked(text: &str) -> Option<wire::CheckedExpr> {
    if text.is_empty() {
        return None;
    }
    let expr = thread::scope(|scope| {
        let reader = thread::Builder::new().name("reader of expressions".to_owned());
        let reader = reader.stack_size(STACK).spawn_scoped(scope, || {
            let parsed = Parser::new().max_recursion_depth(BRACKETS).parse(text);
            message(&parsed.ok()?, DEPTH)
        });
        reader.ok()?.join().ok()?
    })?;
    let boolean = wire::Type {
        type_kind: Some(wire::r#type::TypeKind::Primitive(
            wire::r#type::PrimitiveType::Bool.into(),
        )),
    };
    Some(wire::CheckedExpr {
        type_map: HashMap::from([(expr.id, boolean)]),
        expr: Some(expr),
    })
}

/// Functions and operators have the same names on both sides.
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
        // The config lets no loops and maps in.
        Expr::Comprehension(_) | Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => return None,
    };
    Some(wire::Expr {
        id: part.id.try_into().ok()?,
        expr_kind: Some(kind),
    })
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

    #[test]
    fn an_expression_is_its_parts() {
        let checked = checked("!system_disk && disk.size > 10u * GiB").unwrap();
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
        // No two parts have one id.
        assert_ne!(and.args[0].id, and.args[1].id);
    }

    #[test]
    fn what_is_chosen_from_is_a_list_and_a_function_has_its_target() {
        let root = checked("disk.transport in ['nvme', 'sata']").unwrap();
        let root = root.expr.unwrap();
        let ExprKind::CallExpr(is_in) = kind(&root) else {
            panic!("{root:?}");
        };
        assert_eq!(is_in.function, "@in");
        let ExprKind::ListExpr(list) = kind(&is_in.args[1]) else {
            panic!("{is_in:?}");
        };
        assert_eq!(list.elements.len(), 2);
        let root = checked("disk.model.startsWith('QEMU')").unwrap();
        let root = root.expr.unwrap();
        let ExprKind::CallExpr(starts) = kind(&root) else {
            panic!("{root:?}");
        };
        assert!(starts.target.is_some() && starts.args.len() == 1);
    }

    #[test]
    fn hostile_expressions_are_left_out() {
        let sum = vec!["1"; 500].join("+") + " > 0";
        let brackets = "(".repeat(100) + "true" + &")".repeat(100);
        for text in ["", "&&", "[1].all(x, x > 0)", "{1: 2}", &sum, &brackets] {
            assert_eq!(checked(text), None, "{text}");
        }
    }
}
