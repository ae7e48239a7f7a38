//! What the engine does as a primary, as a replica, and between the two. What is known of the others is in
//! [`crate::replicas`], [`crate::upstream`] and [`crate::failover`].

mod failover;
mod primary;
mod replica;

pub(crate) use replica::ROLE_CHANGED;
