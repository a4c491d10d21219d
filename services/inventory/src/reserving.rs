//! What messages do to reservations and stock, for a whole batch: lock reservations, then all products, decide each
//! in turn, save with one statement per table. Both queues of the service go through here.

use std::collections::{BTreeMap, BTreeSet};

use contracts::command::Line;
use messaging::{Classify as _, Failure};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::domain::{self, Answer, Decision, Movement, Rejection, Request};
use crate::store::reservations::{self, Change, Reservation};
use crate::store::stock::{self, Moves, Stock};

/// One message of a batch.
pub(crate) struct Asked<'a> {
    pub(crate) saga_id: Uuid,
    pub(crate) order_id: Uuid,
    pub(crate) request: Request,
    /// What to reserve; empty for everything else.
    pub(crate) lines: &'a [Line],
}

/// Decides and writes a batch. Returns each message's answer.
pub(crate) async fn apply(connection: &mut PgConnection, batch: &[Asked<'_>]) -> Result<Vec<Option<Answer>>, Failure> {
    let ids: Vec<Uuid> = batch.iter().map(|asked| asked.saga_id).collect();
    let reserved = reservations::lock(connection, &ids).await?;
    let skus: BTreeSet<&str> = batch
        .iter()
        .flat_map(|asked| asked.lines)
        .chain(reserved.iter().flat_map(|reservation| &reservation.lines))
        .map(|line| line.sku.as_str())
        .collect();
    let skus: Vec<String> = skus.into_iter().map(str::to_owned).collect();
    let mut stock = stock::lock(connection, &skus).await?;
    let mut moves: BTreeMap<String, Moves> = BTreeMap::new();
    let mut changes = Vec::new();
    let mut answers = Vec::with_capacity(batch.len());
    for asked in batch {
        let known = reserved.iter().find(|reservation| reservation.saga_id == asked.saga_id);
        let shortage = shortage(known, asked, &stock);
        let decision = domain::decide(known.map(|known| known.status), asked.request, shortage)
            .permanent("inventory.contradiction")?;
        let lines = known.map_or(asked.lines, |known| &known.lines);
        for line in lines {
            shift(&mut stock, moves.entry(line.sku.clone()).or_default(), line, decision.movement);
        }
        changes.extend(change(asked, known, decision));
        answers.push(decision.answer);
    }
    reservations::insert(connection, &changes).await?;
    reservations::update(connection, &changes).await?;
    stock::move_pieces(connection, &moves).await?;
    Ok(answers)
}

/// Why a reservation cannot be made: from its own record where it has been refused before, else from the stock.
fn shortage(known: Option<&Reservation>, asked: &Asked<'_>, stock: &[Stock]) -> Option<Rejection> {
    if let Some(known) = known {
        return known.code.as_deref().and_then(Rejection::coded);
    }
    asked.lines.iter().find_map(|line| match stock.iter().find(|product| product.sku == line.sku) {
        None => Some(Rejection::UnknownSku),
        Some(product) if product.available < line.quantity => Some(Rejection::OutOfStock),
        Some(_) => None,
    })
}

/// Moves the pieces of a line, in the rows that were read (for the next message of the batch) and in the sum to write.
fn shift(stock: &mut [Stock], moves: &mut Moves, line: &Line, movement: Movement) {
    let quantity = line.quantity;
    let (available, reserved, shipped) = match movement {
        Movement::Nothing => return,
        Movement::Reserve => (-quantity, quantity, 0),
        Movement::Release => (quantity, -quantity, 0),
        Movement::Ship => (0, -quantity, quantity),
    };
    if let Some(product) = stock.iter_mut().find(|product| product.sku == line.sku) {
        product.available += available;
    }
    moves.available += available;
    moves.reserved += reserved;
    moves.shipped += shipped;
}

fn change(asked: &Asked<'_>, known: Option<&Reservation>, decision: Decision) -> Option<Change> {
    let status = decision.status.filter(|status| known.map(|known| known.status) != Some(*status))?;
    let code = match decision.answer {
        Some(Answer::Rejected(rejection)) => Some(rejection.code().to_owned()),
        Some(Answer::Reserved | Answer::Released | Answer::Barred) | None => None,
    };
    // A refused reservation and a tombstone hold nothing.
    let lines = if decision.movement == Movement::Reserve { asked.lines.to_vec() } else { Vec::new() };
    Some(Change { saga_id: asked.saga_id, order_id: asked.order_id, status, lines, code, is_new: known.is_none() })
}
