//! Slots for long calls: how many may run at once, in total and for each certificate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tonic::{Extensions, Status};

use super::callers::Caller;

/// Limit of concurrent streams. Each has its own thread, so that a slow caller blocks no other.
pub(super) const STREAMS: usize = 32;
/// Limit of concurrent streams per certificate, so that a reader leaves room for others.
const EACH: usize = 8;
/// One of so many slots is for administrators alone.
const RESERVE: usize = 4;

/// Slots for long operations. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Plural noun for what the slots limit.
    what: &'static str,
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By serial number of the certificate.
    each: HashMap<String, usize>,
}

/// A slot, released on drop.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    serial: Option<String>,
}

impl Places {
    /// `most` slots for `what` (a plural noun).
    pub(super) fn new(what: &'static str, most: usize) -> Places {
        Places(Arc::new(Shared {
            what,
            most,
            taken: Mutex::default(),
        }))
    }

    /// Takes a slot for a call with these extensions. Callers without a certificate only share the total limit.
    pub(super) fn enter(&self, extensions: &Extensions) -> Result<Place, Status> {
        let Shared { what, most, .. } = *self.0;
        let serial = Caller::serial(extensions);
        let mut taken = self.taken();
        let kept = match Caller::is_admin(extensions) {
            true => 0,
            false => most / RESERVE,
        };
        if taken.all >= most.saturating_sub(kept) {
            let all = taken.all;
            return Err(Status::resource_exhausted(format!(
                "{all} {what} are under way already; try again when one has ended"
            )));
        }
        if let Some(serial) = &serial {
            let own = taken.each.entry(serial.clone()).or_insert(0);
            if *own >= EACH {
                return Err(Status::resource_exhausted(format!(
                    "{EACH} {what} of one certificate are under way already, which is the maximum; try again when one \
                     has ended"
                )));
            }
            *own += 1;
        }
        taken.all += 1;
        drop(taken);
        let places = self.clone();
        Ok(Place { places, serial })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all = taken.all.saturating_sub(1);
        if let Some(serial) = &self.serial
            && let Some(own) = taken.each.get_mut(serial)
        {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.each.remove(serial);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_api::roles::Role;
    use tonic::Code;

    use super::*;

    #[test]
    fn streams_of_one_certificate_leave_room_for_others() {
        let places = Places::new("streams", 2 * EACH);
        let of = |serial: &str| {
            let mut extensions = Extensions::new();
            let is_admin = serial == "admin";
            extensions.insert(Caller {
                roles: is_admin.then_some(Role::Admin).into_iter().collect(),
                serial: Some(serial.to_owned()),
            });
            extensions
        };
        let enter = |serial: &str| places.enter(&of(serial));
        let reader: Vec<_> = (0..EACH).map(|_| enter("a").unwrap()).collect();
        let refused = enter("a").unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("one certificate"), "{refused}");
        let others: Vec<_> = (0..EACH / 2).map(|_| enter("b").unwrap()).collect();
        let all = enter("c").unwrap_err();
        assert!(all.message().starts_with("12 streams"), "{all}");
        let admin: Vec<_> = (0..EACH / 2).map(|_| enter("admin").unwrap()).collect();
        let all = enter("admin").unwrap_err();
        assert!(all.message().starts_with("16 streams"), "{all}");
        drop((reader, others, admin));
        assert!(places.taken().each.is_empty());
        enter("a").unwrap();
    }
}
