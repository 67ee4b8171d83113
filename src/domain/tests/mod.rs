//! The rules by table, and by worlds that are made at random.

mod compatibility;
mod evidence;
mod fixtures;
mod histories;
mod history;
mod pod;
mod proofs;
mod restart;
mod signature;
mod survey;
mod table;
mod times;
mod words;
mod worlds;
