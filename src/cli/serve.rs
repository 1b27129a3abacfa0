//! `peeklock serve`: runs a broker until a signal or a failure ends it. `cli.rs` dispatches to it;
//! `server.rs` does the work.

use futures_util::FutureExt as _;

use super::{Failure, ServeFlags};
use crate::config::Loaded;
use crate::{Host, memory, server, telemetry};

pub fn serve(flags: &ServeFlags, host: Host) -> Result<(), Failure> {
    memory::set_allocator_options();
    let loaded = Loaded::load(&flags.layers()?)?;
    telemetry::start(&loaded.config.log);
    // One thread is enough: the broker and the transports have their own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(server::serve(&loaded, host).boxed_local())?)
}
