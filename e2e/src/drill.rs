//! The drill: a failure that nobody announces, and nothing but the logs to find it with. Which failure it is, and among
//! which other orders, follows from a seed; what really became of it is asked of the shop and kept as hashes, so that
//! answers can be judged later, without the shop, and without anybody reading the right ones by accident.

mod answers;
mod plan;
mod run;

pub use answers::{Answers, ENDS, Judged, Question, STEPS, Sealed, undone};
pub use plan::{FAILURES, Plan};
pub use run::{Drill, run};
