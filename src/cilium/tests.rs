mod client;
mod decode;
mod fake;
mod objects;
mod version;
