//! The engine in worlds made for it, over simulated days on paused time.

mod days;
mod gates;
mod settle;
mod world;
