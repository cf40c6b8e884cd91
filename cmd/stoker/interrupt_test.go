//go:build linux && (amd64 || arm64)

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/cli"
)

// TestSignals sends the first signal to commands that wait for a server.
func TestSignals(t *testing.T) {
	for _, line := range []string{
		"inspect URL/x.tar", "inspect URL/x.csv.gz --row 0", "inspect URL/x.parquet", "inspect URL/train", "pack URL/x.zip OUT", "pack URL/x.jsonl OUT",
		"convert URL/x.npz OUT", "verify URL/train", "plan URL/x.tar", "bench URL/x.tar", "cache warm URL/x.tar", "probe URL/x.tar",
	} {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			t.Run(line+" "+signal.String(), func(t *testing.T) {
				t.Parallel()
				code, said := interrupted(t, line, signal)
				if code != cli.ExitInterrupted {
					t.Errorf("it exits with %d: %s", code, said)
				}
			})
		}
	}
}

// interrupted runs a command, sends it a signal once it has asked the server, and returns its exit code and messages.
func interrupted(t *testing.T, line string, signal syscall.Signal) (code int, said string) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	work := t.TempDir()
	args := strings.NewReplacer("URL", "http://"+server.Addr().String(), "OUT", filepath.Join(work, "out")).Replace(line)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Args = append([]string{"stoker"}, strings.Fields(args)...)
	cmd.Env = append(os.Environ(), cache.Variable+"="+work)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		_ = server.Close() // Accept returns, also if the command never asked
	}()
	conn, err := server.Accept()
	if err != nil {
		t.Fatalf("it ended before it asked the server: %s", &out)
	}
	defer conn.Close()
	_ = cmd.Process.Signal(signal)
	for err == nil { // until the command has ended
		conn, err = server.Accept()
		if err == nil {
			defer conn.Close()
		}
	}
	return cmd.ProcessState.ExitCode(), out.String()
}
