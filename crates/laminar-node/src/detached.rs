//! A node in a process of its own: started by whoever needs it first, gone soon after nobody does.
//!
//! A process that cannot be the node says why on its way out. It is started again, since what stood in its way may pass, but
//! not at once; until it answers, its first reason is what calls fail with. A process that found another to be the node says
//! so with its exit code: that one is looked for.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laminar_rpc::{ErrorClass, Failure};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::NodeConfig;
use crate::folder::{Folder, FolderError};
use crate::machines::ApplicationMachines;
use crate::node::{Node, lock};
use crate::running::{self, Running};
use crate::serve::serve;

/// How the process of a node ended that found another to be the node.
pub const EXIT_NOT_THE_NODE: i32 = 75;
/// How it ended if it would fail again, whatever happens around it: the settings or the folder are wrong.
pub const EXIT_INVALID: i32 = 78;

/// The wait after a start that failed; it doubles with each.
const START_BACK_OFF_MIN: Duration = Duration::from_secs(1);
const START_BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// How long a process that is to be the node tries to get the lock: others have it for a moment to see whether it is free.
const LOCK_WAIT: Duration = Duration::from_millis(250);
/// What is kept of the words of a process that ended.
const WORDS_BYTES_MAX: usize = 64 << 10;

/// The starts of a node's process that failed, one after another.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    failed: Mutex<Option<Failed>>,
}

#[derive(Debug)]
struct Failed {
    count: u32,
    last: Instant,
    /// Why the first one failed. Later ones may fail for what the first left behind.
    first: Failure,
}

impl Starts {
    /// Whether a process may be started now; else why the first one failed.
    pub(crate) fn check(&self, now: Instant) -> Result<(), Failure> {
        match &*lock(&self.failed) {
            Some(failed) if now < failed.last + back_off(failed.count) => Err(failed.first.clone()),
            _ => Ok(()),
        }
    }

    /// A start failed; returns what the caller is told.
    pub(crate) fn fail(&self, failure: Failure, now: Instant) -> Failure {
        let mut failed = lock(&self.failed);
        // Nobody has asked for long: what failed then is another story.
        let before = failed.take().filter(|failed| now < failed.last + 2 * START_BACK_OFF_MAX);
        let count = before.as_ref().map_or(1, |before| before.count.saturating_add(1));
        let first = before.map_or(failure, |before| before.first);
        *failed = Some(Failed { count, last: now, first: first.clone() });
        first
    }

    /// The node answers.
    pub(crate) fn succeed(&self) {
        *lock(&self.failed) = None;
    }
}

fn back_off(failed: u32) -> Duration {
    START_BACK_OFF_MIN.saturating_mul(1 << failed.saturating_sub(1).min(10)).min(START_BACK_OFF_MAX)
}

/// How a process ended, and what it said.
pub(crate) struct Ended {
    status: Option<ExitStatus>,
    words: String,
}

impl Ended {
    /// Whether another process was the node, or one held the lock for a moment.
    pub(crate) fn is_not_the_node(&self) -> bool {
        self.status
            .and_then(|status| status.code())
            .is_some_and(|code| code == EXIT_NOT_THE_NODE || code == 0)
    }

    /// What the caller is told of a process that was started with this command.
    pub(crate) fn failure(&self, command: &str) -> Failure {
        let ended = self.status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        let why = self.reason().unwrap_or("it said nothing; look at node.log in the folder");
        let message = format!("the node's process could not start ({ended}): {why} (command: {command})");
        let is_final = self.status.and_then(|status| status.code()) == Some(EXIT_INVALID);
        Failure::new(if is_final { ErrorClass::Invalid } else { ErrorClass::Unavailable }, message)
    }

    /// The last line that says something: of a traceback that is the error.
    fn reason(&self) -> Option<&str> {
        self.words.lines().rev().map(str::trim).find(|line| !line.is_empty())
    }
}

/// Starts the process of a node. What is returned is ready once it has ended.
pub(crate) fn start(command: &[String]) -> io::Result<oneshot::Receiver<Ended>> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
    // Its own process group: Ctrl-C in the client's terminal is not for it.
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let (tell, ended) = oneshot::channel();
    // Somebody must wait for it, also when nobody here is interested any more: it would stay as a zombie of this process.
    std::thread::spawn(move || drop(tell.send(wait_for(child))));
    Ok(ended)
}

/// Waits for the end of a process. Once it is the node its words go to its log, and nothing is left to read.
fn wait_for(mut child: Child) -> Ended {
    let mut words = Vec::new();
    if let Some(mut said) = child.stderr.take() {
        let mut piece = [0; 4096];
        while let Ok(read) = said.read(&mut piece)
            && read > 0
        {
            words.extend_from_slice(&piece[..read]);
            // The error is at the end.
            let surplus = words.len().saturating_sub(WORDS_BYTES_MAX);
            words.drain(..surplus);
        }
    }
    Ended { status: child.wait().ok(), words: String::from_utf8_lossy(&words).into_owned() }
}

/// Runs the node of a folder in this process until nobody has needed it for a while: a detached node.
///
/// Returns false at once if another process is the node.
///
/// # Errors
///
/// As opening.
pub async fn run_detached(
    path: &Path,
    config: NodeConfig,
    machines: Arc<dyn ApplicationMachines>,
    stop_asked: impl Future<Output = ()>,
) -> Result<bool, Failure> {
    let (linger, close_timeout) = (config.client_timeout, config.close_timeout);
    let Some(folder) = take(path).await? else { return Ok(false) };
    let path = folder.path().to_owned();
    let node = Node::open(folder, config, machines).await?;
    let endpoint = serve(&node).await?;
    let started = Instant::now();
    let unused = async {
        loop {
            tokio::time::sleep(linger / 10).await;
            if started.elapsed() > linger && node.idle_for() > linger {
                return;
            }
        }
    };
    tokio::select! {
        () = unused => {}
        () = stop_asked => {}
        () = node.stopped() => {}
    }
    running::keep(&path, Running { node: node.clone(), endpoint, users: 1 });
    running::close(&path, close_timeout).await?;
    Ok(true)
}

/// The folder, unless another process keeps it.
async fn take(path: &Path) -> Result<Option<Folder>, FolderError> {
    let until = Instant::now() + LOCK_WAIT;
    loop {
        let taken = Folder::take(path, None)?;
        if taken.is_some() || Instant::now() >= until {
            return Ok(taken);
        }
        tokio::time::sleep(LOCK_WAIT / 10).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str, code: i32) -> Ended {
        use std::os::unix::process::ExitStatusExt;
        Ended { status: Some(ExitStatus::from_raw(code << 8)), words: words.to_owned() }
    }

    #[test]
    fn the_end_of_a_process_tells_why_it_could_not_start() {
        let traceback =
            "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'y'\n\n";
        let failure = said(traceback, 1).failure("python -m laminar.node");
        assert_eq!(failure.class, ErrorClass::Unavailable);
        assert_eq!(
            failure.message,
            "the node's process could not start (exit status: 1): ModuleNotFoundError: No module named 'y' \
             (command: python -m laminar.node)"
        );
        assert_eq!(said("no", EXIT_INVALID).failure("x").class, ErrorClass::Invalid);
        assert!(said("", 9).failure("x").message.contains("look at node.log"));
        assert!(said("", EXIT_NOT_THE_NODE).is_not_the_node() && said("", 0).is_not_the_node());
        assert!(!said("", 1).is_not_the_node());
    }

    #[test]
    fn starts_that_fail_come_less_and_less_often_and_tell_the_first_reason() {
        let starts = Starts::default();
        let (began, mut tried) = (Instant::now(), Vec::new());
        for second in 0..10 {
            let now = began + Duration::from_secs(second);
            let told = match starts.check(now) {
                Ok(()) => {
                    tried.push(second);
                    starts.fail(Failure::unavailable(format!("reason {}", tried.len())), now)
                }
                Err(told) => told,
            };
            assert_eq!(told.message, "reason 1");
        }
        assert_eq!(tried, [0, 1, 3, 7]);
        let long_after = began + Duration::from_secs(60);
        assert_eq!(starts.fail(Failure::unavailable("another"), long_after).message, "another");
        assert!(starts.check(long_after).is_err());
        starts.succeed();
        assert!(starts.check(long_after).is_ok());
    }
}
