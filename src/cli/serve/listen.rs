//! Accepting connections: a bounded number at a time, each with a time limit for the head of a request, so that silent clients
//! lock nobody out.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Open connections at a time, below the usual limit of 1,024 open files. Further ones wait in the system's queue.
const MAX_CONNECTIONS: usize = 256;
/// Time for the head of a request, also that of the next one on a connection that is kept open.
const HEAD: Duration = Duration::from_secs(15);
/// Until the next attempt where the system has no file left for a connection.
const PAUSE: Duration = Duration::from_millis(500);

/// Serves connections for as long as it is polled.
pub async fn serve(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let mut failed = false;
    // Nobody closes the semaphore, so there is always a next place.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) if is_the_clients(&e) => continue,
            Err(e) => {
                if !failed {
                    errln!("warning: a connection was not accepted: {e}");
                }
                failed = true;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        failed = false;
        // Tokens of a stream are small, and each goes out at once.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            let _place = place;
            // An error is the client's: it went away, or sent no HTTP.
            let _ = connection.await;
        });
    }
}

/// The client went away before it was accepted; the next one may be there.
fn is_the_clients(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_all_connections_pauses() {
        assert!(is_the_clients(&ErrorKind::ConnectionAborted.into()));
        // Too many open files, on all systems.
        let too_many = io::Error::from_raw_os_error(24);
        assert!(!is_the_clients(&too_many));
    }
}
