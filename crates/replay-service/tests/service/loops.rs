//! The loop of the first replay, a shell script with `curl` and `xrdcp`, written anew: it runs unchanged
//! beside agents.

use std::process::Stdio;

use exacat_replay::run::shapes::RunState;

use crate::rig::{Rig, good};

/// The old loop. `copy` stands for `timeout T xrdcp -f --cksum adler32:V -d 2 -N CACHE//PATH /dev/null`.
const LOOP: &str = r#"
copy() { case "$1" in *f3) return 54 ;; *) return 0 ;; esac; }
while true; do
    answer=$(curl -s -w '\n%{http_code}' "$SERVICE/stress_test")
    code=$(printf '%s' "$answer" | tail -n 1)
    [ "$code" = 200 ] || break
    body=$(printf '%s' "$answer" | head -n 1)
    id=$(printf '%s' "$body" | sed 's/.*"_id":"\([^"]*\)".*/\1/')
    path=$(printf '%s' "$body" | sed 's/.*"path":"\([^"]*\)".*/\1/')
    copy "$path"
    [ "$(curl -s "$SERVICE/stress_result/$id/$?/0.25")" = OK ] || exit 1
    echo "$path"
done
"#;

#[tokio::test]
async fn old_loop_and_an_agent_work_on_one_run() {
    if std::process::Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: curl is not installed");
        return;
    }
    let rig = Rig::new(&[1, 2, 3, 4, 5]).await;
    rig.begin("first", 8).await;
    let mine = rig.items("first", "a", 1).await.unwrap().items;
    let service = format!("http://{}", rig.server.as_ref().unwrap().address());
    let mut bash = tokio::process::Command::new("bash");
    let output = bash.arg("-c").arg(LOOP).env("SERVICE", service).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let paths = String::from_utf8(output.stdout).unwrap();
    assert_eq!(paths.lines().collect::<Vec<_>>(), ["/data/f2", "/data/f3", "/data/f4", "/data/f5"]);
    let answer = rig.results("first", "a", vec![good(&mine[0])]).await.unwrap();
    assert_eq!(answer.state, Some(RunState::Done));
    let view = rig.remote.run("first").await.unwrap();
    assert_eq!((view.ended, view.failed), (5, 1));
    for bad in ["x", "first.0", "first.9.1/0/1", "first.0.9/0/1", "first.1.1/300/1", "first.1.1/0/-1"] {
        let path = format!("/stress_result/{bad}");
        assert!(rig.client.bytes(hyper::Method::GET, &path).await.is_err(), "{bad}");
    }
}
