//! The one door: what a principal may do is checked at every command, by one table, and ends when what was
//! granted ends.

mod rights {
    pub mod commands;
    mod ends;
    mod lists;
    mod matrix;
    mod transactions;
    pub mod world;
}
