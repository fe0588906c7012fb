//! Errors of frame streams as exceptions.

use fpga_frames::{JoinError, LocalError, PublishError, PublisherError, SubscriberError, TakeError};

use crate::error::{Class, Classify as _, Failure};

/// Converts an error whose text names the card.
fn failure(class: Class, error: &dyn core::fmt::Display, advice: Option<fpga_driver::Advice>) -> Failure {
    let failure = Failure::new(class, error.to_string());
    match advice {
        Some(advice) => failure.advice(crate::advice::render(&advice)),
        None => failure,
    }
}

/// Returns the class of a failure of this node's card.
fn local(error: &LocalError) -> Class {
    match error {
        LocalError::Endpoint(error) => error.kind.class(),
        LocalError::Resource(error) => error.kind.class(),
        LocalError::Channel(error) => error.kind.class(),
        LocalError::Submit(error) => error.kind.class(),
        _ => Class::TransferFault,
    }
}

fn publisher_class(error: &PublisherError) -> Class {
    match error {
        PublisherError::Geometry { .. } | PublisherError::Option { .. } => Class::RangeError,
        PublisherError::Local(error) => local(error),
        PublisherError::TimedOut { .. } => Class::TimedOutError,
        _ => Class::RefusedError,
    }
}

fn subscriber_class(error: &SubscriberError) -> Class {
    match error {
        SubscriberError::Local(error) => local(error),
        SubscriberError::Send(error) => error.kind.class(),
        SubscriberError::TimedOut { .. } => Class::TimedOutError,
        _ => Class::RefusedError,
    }
}

impl From<PublisherError> for Failure {
    fn from(error: PublisherError) -> Self {
        failure(publisher_class(&error), &error, error.advice())
    }
}

impl From<SubscriberError> for Failure {
    fn from(error: SubscriberError) -> Self {
        failure(subscriber_class(&error), &error, error.advice())
    }
}

impl From<TakeError> for Failure {
    fn from(error: TakeError) -> Self {
        let class = match &error {
            TakeError::Full { .. } => Class::RingFullError,
            TakeError::Closing => Class::ClosedError,
            TakeError::Publisher(error) => publisher_class(error),
            _ => Class::RefusedError,
        };
        failure(class, &error, error.advice())
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        let class = match &error {
            PublishError::NoFreeSlot { .. } => Class::RingFullError,
            PublishError::Submit { .. } => Class::TransferFault,
            PublishError::Closing => Class::ClosedError,
            PublishError::TooLong(_) => Class::RangeError,
            _ => Class::RefusedError,
        };
        failure(class, &error, error.advice())
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        let class = match &error {
            JoinError::Geometry { .. } => Class::DmaMemoryError,
            JoinError::EventRing { .. } => Class::RangeError,
            JoinError::Subscriber(error) => subscriber_class(error),
            _ => Class::RefusedError,
        };
        failure(class, &error, error.advice())
    }
}
