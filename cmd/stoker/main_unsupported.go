//go:build !(linux && (amd64 || arm64))

// Command stoker prepares datasets and feeds training loops from them. This file replaces it on systems that it does
// not support.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "stoker: %s/%s is not supported: Stoker runs on linux/amd64 and linux/arm64\n", runtime.GOOS, runtime.GOARCH)
	os.Exit(1)
}
