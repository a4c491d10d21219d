//! What PostgreSQL's error codes mean for a message, in one table.
//! Codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.

use super::Class;

/// First match counts: whole codes before classes of codes.
const TABLE: &[(&str, Class)] = &[
    ("40001", Class::Conflict),    // serialization_failure
    ("40P01", Class::Conflict),    // deadlock_detected
    ("25006", Class::Unavailable), // read_only_sql_transaction: a fail-over is under way
    ("25P03", Class::Unavailable), // idle_in_transaction_session_timeout: the session is gone
    ("57014", Class::Transient),   // query_canceled, by statement_timeout
    ("55P03", Class::Transient),   // lock_not_available, by lock_timeout
    ("57P", Class::Unavailable),   // the server stops, starts, crashed, dropped the database or an idle session
    ("08", Class::Unavailable),    // connection exceptions
    ("53", Class::Unavailable),    // disk full, out of memory, too many connections
    ("58", Class::Unavailable),    // system errors, among them files that cannot be read
];

/// The class and the code of an error of the database client.
pub(super) fn classify(error: &sqlx::Error) -> (Class, String) {
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            (by_code(&code), format!("database.{code}"))
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => (Class::Unavailable, "database.away".to_owned()),
        _ => (Class::Permanent, "database.client".to_owned()),
    }
}

fn by_code(code: &str) -> Class {
    TABLE.iter().find(|(prefix, _)| code.starts_with(prefix)).map_or(Class::Permanent, |(_, class)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_the_class_that_the_table_of_faults_gives_it() {
        for (code, class) in [
            ("40001", Class::Conflict),
            ("40P01", Class::Conflict),
            ("08006", Class::Unavailable),
            ("57P01", Class::Unavailable),
            ("57P03", Class::Unavailable),
            ("57P05", Class::Unavailable),
            ("25006", Class::Unavailable),
            ("25P03", Class::Unavailable),
            ("53100", Class::Unavailable),
            ("53300", Class::Unavailable),
            ("58030", Class::Unavailable),
            ("57014", Class::Transient),
            ("55P03", Class::Transient),
            ("23505", Class::Permanent),
            ("23514", Class::Permanent),
            ("42P01", Class::Permanent),
            ("42501", Class::Permanent),
            ("22P05", Class::Permanent),
            ("25P02", Class::Permanent),
        ] {
            assert_eq!(by_code(code), class, "{code}");
        }
    }

    #[test]
    fn a_pool_without_a_free_connection_is_an_absence_and_nobody_s_fault() {
        assert_eq!(classify(&sqlx::Error::PoolTimedOut).0, Class::Unavailable);
        assert_eq!(classify(&sqlx::Error::RowNotFound).0, Class::Permanent);
    }
}
