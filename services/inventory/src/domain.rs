//! What a reservation can be, and what each message does to it. Pure functions; stock itself is kept from going
//! negative by the table's constraints, whatever is decided here.

/// The status of a reservation. Never deleted: a refusal and a release without a reservation are outcomes too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// Pieces are set aside.
    Reserved,
    /// They left with the parcel.
    Committed,
    /// There were not enough.
    Rejected,
    /// They are back; without a reservation before it this is the tombstone.
    Released,
}

/// What is asked of inventory, or told to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Set pieces aside.
    Reserve,
    /// Give them back.
    Release,
    /// The parcel is on its way.
    Shipped,
}

/// How pieces move.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Movement {
    /// Not at all.
    Nothing,
    /// From available to reserved.
    Reserve,
    /// From reserved to available.
    Release,
    /// From reserved to shipped.
    Ship,
}

/// What the orchestrator is answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// The pieces are set aside.
    Reserved,
    /// They are not, and never will be.
    Rejected(Rejection),
    /// Nothing is set aside any more, and nothing will be.
    Released,
    /// Nothing was set aside when the undo came; the tombstone refuses a do that comes later.
    Barred,
}

/// Why not: stable codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rejection {
    /// Not enough pieces.
    OutOfStock,
    /// Nobody here knows the product.
    UnknownSku,
    /// The reservation was released before.
    Undone,
}

/// What to write, move and answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Decision {
    /// The record afterwards.
    pub status: Option<Status>,
    /// How its pieces move.
    pub movement: Movement,
    /// The answer; a shipped order gets none.
    pub answer: Option<Answer>,
}

/// The message contradicts the record: no fault of the network can bring that about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{request:?} cannot come for a reservation that is {status:?}")]
pub struct Contradiction {
    /// The record.
    pub status: Option<Status>,
    /// What was asked.
    pub request: Request,
}

/// What a message does to a reservation. `shortage`: why a fresh reservation cannot be made, if it cannot.
///
/// # Errors
/// The message contradicts the record.
pub fn decide(
    status: Option<Status>,
    request: Request,
    shortage: Option<Rejection>,
) -> Result<Decision, Contradiction> {
    use Status::{Committed, Rejected, Released, Reserved};
    let keep = |answer| Ok(Decision { status, movement: Movement::Nothing, answer });
    match (request, status) {
        (Request::Reserve, None) => Ok(match shortage {
            None => Decision { status: Some(Reserved), movement: Movement::Reserve, answer: Some(Answer::Reserved) },
            // Written down like any outcome: stock may come in before the command comes again.
            Some(rejection) => Decision {
                status: Some(Rejected),
                movement: Movement::Nothing,
                answer: Some(Answer::Rejected(rejection)),
            },
        }),
        (Request::Reserve, Some(Reserved | Committed)) => keep(Some(Answer::Reserved)),
        (Request::Reserve, Some(Rejected)) => keep(Some(Answer::Rejected(shortage.unwrap_or(Rejection::OutOfStock)))),
        (Request::Reserve, Some(Released)) => keep(Some(Answer::Rejected(Rejection::Undone))),

        (Request::Release, None) => {
            Ok(Decision { status: Some(Released), movement: Movement::Nothing, answer: Some(Answer::Barred) })
        }
        (Request::Release, Some(Reserved)) => {
            Ok(Decision { status: Some(Released), movement: Movement::Release, answer: Some(Answer::Released) })
        }
        (Request::Release, Some(Rejected | Released)) => keep(Some(Answer::Released)),

        (Request::Shipped, Some(Reserved)) => {
            Ok(Decision { status: Some(Committed), movement: Movement::Ship, answer: None })
        }
        (Request::Shipped, Some(Committed)) => keep(None),
        (Request::Release, Some(Committed)) | (Request::Shipped, None | Some(Rejected | Released)) => {
            Err(Contradiction { status, request })
        }
    }
}

impl Status {
    const ALL: [Status; 4] = [Status::Reserved, Status::Committed, Status::Rejected, Status::Released];

    /// The name in rows and answers.
    pub fn name(self) -> &'static str {
        match self {
            Status::Reserved => "reserved",
            Status::Committed => "committed",
            Status::Rejected => "rejected",
            Status::Released => "released",
        }
    }

    /// The status with this name.
    pub fn named(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl Rejection {
    const ALL: [Rejection; 3] = [Rejection::OutOfStock, Rejection::UnknownSku, Rejection::Undone];

    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Rejection::OutOfStock => "inventory.out_of_stock",
            Rejection::UnknownSku => "inventory.unknown_sku",
            Rejection::Undone => "inventory.undone",
        }
    }

    /// The rejection with this code.
    pub fn coded(code: &str) -> Option<Rejection> {
        Rejection::ALL.into_iter().find(|rejection| rejection.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_the_table_does_what_the_table_says() {
        use Answer::{Barred, Rejected as No, Released as Gone, Reserved as Yes};
        use Movement::{Nothing, Release, Reserve, Ship};
        use Rejection::{OutOfStock, Undone};
        let some = |status, movement, answer| Some((Some(status), movement, answer));
        let table = [
            (None, Request::Reserve, some(Status::Reserved, Reserve, Some(Yes))),
            (Some(Status::Reserved), Request::Reserve, some(Status::Reserved, Nothing, Some(Yes))),
            (Some(Status::Committed), Request::Reserve, some(Status::Committed, Nothing, Some(Yes))),
            (Some(Status::Rejected), Request::Reserve, some(Status::Rejected, Nothing, Some(No(OutOfStock)))),
            (Some(Status::Released), Request::Reserve, some(Status::Released, Nothing, Some(No(Undone)))),
            (None, Request::Release, some(Status::Released, Nothing, Some(Barred))),
            (Some(Status::Reserved), Request::Release, some(Status::Released, Release, Some(Gone))),
            (Some(Status::Committed), Request::Release, None),
            (Some(Status::Rejected), Request::Release, some(Status::Rejected, Nothing, Some(Gone))),
            (Some(Status::Released), Request::Release, some(Status::Released, Nothing, Some(Gone))),
            (None, Request::Shipped, None),
            (Some(Status::Reserved), Request::Shipped, some(Status::Committed, Ship, None)),
            (Some(Status::Committed), Request::Shipped, some(Status::Committed, Nothing, None)),
            (Some(Status::Rejected), Request::Shipped, None),
            (Some(Status::Released), Request::Shipped, None),
        ];
        for (status, request, expected) in table {
            let decided = decide(status, request, None).ok().map(|d| (d.status, d.movement, d.answer));
            assert_eq!(decided, expected, "{status:?} × {request:?}");
        }
        let short = decide(None, Request::Reserve, Some(OutOfStock)).unwrap();
        assert_eq!((short.status, short.movement), (Some(Status::Rejected), Nothing));
        assert_eq!(short.answer, Some(No(OutOfStock)));
    }

    #[test]
    fn statuses_and_codes_keep_their_names() {
        for status in Status::ALL {
            assert_eq!(Status::named(status.name()), Some(status));
        }
        for rejection in Rejection::ALL {
            assert_eq!(Rejection::coded(rejection.code()), Some(rejection));
        }
    }
}
