//! The rules by table, and by worlds that are made at random.

mod compatibility;
mod fixtures;
mod histories;
mod history;
mod restart;
mod signature;
mod survey;
mod table;
mod words;
mod worlds;
