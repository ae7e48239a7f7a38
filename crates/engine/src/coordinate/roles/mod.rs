//! The engine as a primary, as a replica, and between the two. Its knowledge of other servers is in
//! [`crate::replicas`], [`crate::upstream`] and [`crate::failover`].

mod failover;
mod primary;
mod replica;

pub(crate) use replica::ROLE_CHANGED;
