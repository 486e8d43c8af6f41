//! Compiles the `.proto` files with protox, so that no protoc is needed on the machine that builds.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["laminar/v1/metadata.proto"], ["proto"])?;
    prost_build::Config::new()
        // Ordered maps: the same content must give the same bytes on every replica (APPLY-2).
        .btree_map(["."])
        // The large changes are boxed: a hostile batch of empty ones then costs tens of bytes each, not hundreds.
        .boxed(".laminar.v1.Change.change.release_partition")
        .boxed(".laminar.v1.Change.change.commit_checkpoint")
        .boxed(".laminar.v1.Change.change.update_node_state")
        .boxed(".laminar.v1.Change.change.register_node")
        .boxed(".laminar.v1.Change.change.create_stream")
        .boxed(".laminar.v1.Change.change.alter_stream")
        .boxed(".laminar.v1.Change.change.bind_query")
        .compile_fds(files)?;
    Ok(())
}
