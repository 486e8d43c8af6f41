//! Compiles the service with protox, so that no protoc is needed on the machine that builds.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["laminar/v1/laminar.proto"], ["proto"])?;
    tonic_prost_build::configure()
        // Rows are handed on without copies.
        .bytes(".")
        .btree_map(".")
        .compile_fds(files)?;
    Ok(())
}
