//! Replies of a link itself. They are not part of the run's history, so they carry `seq` 0.

use crate::base::clock::Clock;
use crate::wire::{CommandId, Envelope, Event, VERSION};

pub(super) fn rejected(id: CommandId, why: &str) -> Event {
    Event::Rejected {
        id,
        why: why.into(),
    }
}

/// A reply of the link itself.
pub(super) fn envelope(event: Event, clock: &dyn Clock) -> Envelope {
    Envelope {
        v: VERSION,
        seq: 0,
        t: clock.now(),
        event,
    }
}
