//go:build linux && (amd64 || arm64)

// Command stoker prepares datasets and feeds training loops from them. Each
// command is one file of package cli; testdata/*.txtar is their contract.
package main

import (
	"os"

	"github.com/stokerdata/stoker/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
