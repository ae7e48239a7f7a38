//! The commands of the group `zset`, one file each or a tight family.

mod algebra;
pub(crate) mod bounds;
mod counts;
mod random;
mod scores;
pub(crate) mod zadd;
mod zpop;
mod zrange;

use engine::Command;

/// The rows of this group.
pub static COMMANDS: &[&Command] = &[
    &algebra::ZDIFFSTORE,
    &algebra::ZINTERSTORE,
    &algebra::ZUNIONSTORE,
    &algebra::ZINTERCARD,
    &algebra::ZDIFF,
    &algebra::ZINTER,
    &algebra::ZUNION,
    &random::ZRANDMEMBER,
    &counts::ZREMRANGEBYLEX,
    &counts::ZREMRANGEBYSCORE,
    &counts::ZREMRANGEBYRANK,
    &counts::ZLEXCOUNT,
    &counts::ZCOUNT,
    &zrange::ZRANGESTORE,
    &zrange::ZREVRANGEBYLEX,
    &zrange::ZRANGEBYLEX,
    &zrange::ZREVRANGEBYSCORE,
    &zrange::ZRANGEBYSCORE,
    &zrange::ZREVRANGE,
    &zrange::ZRANGE,
    &zpop::BZMPOP,
    &zpop::BZPOPMAX,
    &zpop::BZPOPMIN,
    &zpop::ZMPOP,
    &zpop::ZPOPMAX,
    &zpop::ZPOPMIN,
    &scores::ZREVRANK,
    &scores::ZRANK,
    &scores::ZCARD,
    &scores::ZMSCORE,
    &scores::ZSCORE,
    &scores::ZREM,
    &zadd::ZINCRBY,
    &zadd::ZADD,
];
