//! An error on its way between a node and its client, and on to the user.

use std::collections::BTreeMap;
use std::fmt;

use laminar_core::error::ErrorKind;
use prost::Message;
use tonic::{Code, Status};

use crate::proto;

/// Why a call was refused or failed, as the user will see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The class of the error.
    pub class: ErrorClass,
    /// What happened, where, which value against which limit, and what to do.
    pub message: String,
    /// Whether the call may have taken effect all the same.
    pub outcome_unknown: bool,
    /// The typed fields of the class, by name.
    pub fields: BTreeMap<String, Field>,
}

/// The value of a typed field.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// Text.
    Text(String),
    /// A number that may be negative.
    Integer(i64),
    /// A number that is not.
    Unsigned(u64),
    /// Yes or no.
    Flag(bool),
    /// A number with a fraction.
    Real(f64),
}

macro_rules! classes {
    ($($name:ident => $kind:ident, $retryable:literal;)*) => {
        /// The errors that a node or client raises, by the names users know.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)]
        pub enum ErrorClass {
            $($name,)*
        }

        impl ErrorClass {
            /// All classes.
            pub const ALL: &[ErrorClass] = &[$(ErrorClass::$name,)*];

            /// The name of the class in Python.
            pub fn name(self) -> &'static str {
                match self { $(ErrorClass::$name => concat!(stringify!($name), "Error"),)* }
            }

            /// What the caller should do about it.
            pub fn kind(self) -> ErrorKind {
                match self { $(ErrorClass::$name => ErrorKind::$kind,)* }
            }

            /// Whether the same call may succeed later without anything being changed.
            pub fn is_retryable(self) -> bool {
                match self { $(ErrorClass::$name => $retryable,)* }
            }

            fn of_name(name: &str) -> Option<Self> {
                ErrorClass::ALL.iter().copied().find(|class| class.name() == name)
            }
        }
    };
}

classes! {
    StaleEpoch => Stale, false;
    UnknownPartition => Stale, false;
    NotOwned => Stale, false;
    Raft => Unavailable, true;
    NotLeader => Unavailable, true;
    NotInitialized => Unavailable, true;
    Snapshot => Unavailable, true;
    Network => Unavailable, true;
    NoActiveNodes => Unavailable, true;
    Backpressure => Overloaded, true;
    Corruption => Corrupt, false;
    Unavailable => Unavailable, true;
    Invalid => Invalid, false;
    Internal => Internal, false;
}

impl Failure {
    /// An error without fields.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Failure { class, message: message.into(), outcome_unknown: false, fields: BTreeMap::new() }
    }

    /// With a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Field>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// With a field, if there is something to say.
    #[must_use]
    pub fn with_known(self, name: &str, value: Option<impl Into<Field>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The call may have taken effect.
    #[must_use]
    pub fn unknown(mut self) -> Self {
        self.outcome_unknown = true;
        self
    }

    /// A wrong argument.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Invalid, message)
    }

    /// Nobody answers.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Unavailable, message)
    }

    /// A bug of ours.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Internal, message)
    }

    /// A field that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.fields.get(name)? {
            Field::Unsigned(value) => Some(*value),
            Field::Integer(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let code = match failure.class.kind() {
            ErrorKind::Stale | ErrorKind::Fenced => Code::FailedPrecondition,
            ErrorKind::Overloaded => Code::ResourceExhausted,
            ErrorKind::Unavailable => Code::Unavailable,
            ErrorKind::Invalid => Code::InvalidArgument,
            ErrorKind::Corrupt => Code::DataLoss,
            ErrorKind::Internal => Code::Internal,
        };
        let message = failure.message.clone();
        let detail = proto::ErrorDetail::from(failure);
        Status::with_details(code, message, detail.encode_to_vec().into())
    }
}

impl From<Failure> for proto::ErrorDetail {
    fn from(failure: Failure) -> Self {
        proto::ErrorDetail {
            class: failure.class.name().to_owned(),
            message: failure.message,
            retryable: failure.class.is_retryable(),
            outcome_unknown: failure.outcome_unknown,
            fields: failure.fields.into_iter().map(|(name, value)| (name, value.into())).collect(),
        }
    }
}

impl From<proto::ErrorDetail> for Failure {
    /// A class that this release does not know is a fault of the node, and its outcome is what the node says.
    fn from(detail: proto::ErrorDetail) -> Self {
        let fields =
            detail.fields.into_iter().filter_map(|(name, value)| Some((name, Field::try_from(value).ok()?)));
        Failure {
            class: ErrorClass::of_name(&detail.class).unwrap_or(ErrorClass::Internal),
            message: detail.message,
            outcome_unknown: detail.outcome_unknown,
            fields: fields.collect(),
        }
    }
}

impl From<&Status> for Failure {
    /// What a call failed with. A status that is not ours (of the transport, or of something else on the port) becomes
    /// the class that tells the caller what to do.
    fn from(status: &Status) -> Self {
        if let Some(failure) = ours(status) {
            return failure;
        }
        let message = status.message().to_owned();
        match status.code() {
            Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
                Failure::new(ErrorClass::Network, message).unknown()
            }
            Code::Unavailable => Failure::new(ErrorClass::Network, message).unknown(),
            Code::ResourceExhausted => Failure::new(ErrorClass::Backpressure, message),
            Code::InvalidArgument | Code::OutOfRange | Code::Unauthenticated | Code::PermissionDenied => {
                Failure::new(ErrorClass::Invalid, message)
            }
            Code::Unimplemented => Failure::invalid(format!("{message}; the node is of another release")),
            Code::DataLoss => Failure::new(ErrorClass::Corruption, message),
            _ => Failure::internal(message),
        }
    }
}

fn ours(status: &Status) -> Option<Failure> {
    if status.details().is_empty() {
        return None;
    }
    let detail = proto::ErrorDetail::decode(status.details()).ok()?;
    // The code still says what to do where the class is of a later release.
    ErrorClass::of_name(&detail.class)?;
    Some(Failure::from(detail))
}

impl From<Field> for proto::FieldValue {
    fn from(field: Field) -> Self {
        use proto::field_value::Value;
        let value = match field {
            Field::Text(text) => Value::Text(text),
            Field::Integer(number) => Value::Integer(number),
            Field::Unsigned(number) => Value::Unsigned(number),
            Field::Flag(flag) => Value::Flag(flag),
            Field::Real(real) => Value::Real(real),
        };
        proto::FieldValue { value: Some(value) }
    }
}

impl TryFrom<proto::FieldValue> for Field {
    type Error = ();

    fn try_from(value: proto::FieldValue) -> Result<Self, ()> {
        use proto::field_value::Value;
        Ok(match value.value.ok_or(())? {
            Value::Text(text) => Field::Text(text),
            Value::Integer(number) => Field::Integer(number),
            Value::Unsigned(number) => Field::Unsigned(number),
            Value::Flag(flag) => Field::Flag(flag),
            Value::Real(real) => Field::Real(real),
        })
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Field::Text(text)
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Field::Text(text.to_owned())
    }
}

impl From<u64> for Field {
    fn from(number: u64) -> Self {
        Field::Unsigned(number)
    }
}

impl From<u32> for Field {
    fn from(number: u32) -> Self {
        Field::Unsigned(number.into())
    }
}

impl From<i64> for Field {
    fn from(number: i64) -> Self {
        Field::Integer(number)
    }
}

impl From<bool> for Field {
    fn from(flag: bool) -> Self {
        Field::Flag(flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_comes_out_as_it_went_in() {
        for class in ErrorClass::ALL {
            let failure = Failure::new(*class, "partition 3: refused")
                .with("partition", 3_u32)
                .with("since_ms", -4_i64)
                .with("writer", "b")
                .with("batch_committed", true)
                .unknown();
            let status = Status::from(failure.clone());
            assert_eq!(Failure::from(&status), failure);
        }
    }

    #[test]
    fn a_status_of_something_else_still_says_what_to_do() {
        let failure = Failure::from(&Status::new(Code::Unavailable, "tcp connect error"));
        assert_eq!((failure.class, failure.outcome_unknown), (ErrorClass::Network, true));
        let garbage = Status::with_details(Code::Internal, "?", bytes::Bytes::from_static(b"\xff\xff"));
        assert_eq!(Failure::from(&garbage).class, ErrorClass::Internal);
    }
}
