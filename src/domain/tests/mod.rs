//! The rules by table, and by worlds that are made at random.

mod fixtures;
mod signature;
mod table;
mod worlds;
