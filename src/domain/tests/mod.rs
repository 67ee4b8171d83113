//! The rules by table, and by worlds that are made at random.

mod fixtures;
mod signature;
mod survey;
mod table;
mod worlds;
