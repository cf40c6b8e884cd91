//go:build linux && (amd64 || arm64)

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/cli"
	"github.com/stokerdata/stoker/internal/dynlib"
)

func TestMain(m *testing.M) {
	if os.Getenv("STOKER_TEST_POLICIES") != "" {
		printPolicies()
		return
	}
	testscript.Main(m, map[string]func(){
		"stoker": func() {
			os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// TestScripts runs testdata/*.txtar. Each is a session with the command line, with its output and exit codes.
//
// In addition to testscript's own commands there are
//
//	code N stoker ARGS...   the program must end with exactly that exit code;
//	                        "stdout" and "stderr" then look at what it printed
//	glob PATTERN N          exactly N files match
//	unhex TO FROM           the file TO has the bytes that FROM has as hexadecimal text
//	$REPO                   the root of the repository, for files of other tests
//	archive OUT DIR         a tar, tar.gz or zip file of the files below DIR
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireUniqueNames:  true,
		RequireExplicitExec: false,
		Setup: func(env *testscript.Env) error {
			env.Setenv(cache.Variable, filepath.Join(env.WorkDir, ".cache"))
			repo, err := filepath.Abs("../..")
			env.Setenv("REPO", repo)
			// FFmpeg's libraries are the system's or those in the wheel of PyAV, as for a loader.
			wheel, _ := filepath.Glob(filepath.Join(repo, ".venv/lib/python3*/site-packages/av.libs"))
			env.Setenv(dynlib.Packages, strings.Join(append([]string{dynlib.System}, wheel...), ":"))
			return err
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code":    wantExitCode,
			"glob":    wantMatches,
			"archive": makeArchive,
			"unhex":   unhex,
		},
	})
}

func wantExitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command args...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		type exitCoder interface{ ExitCode() int }
		e, ok := err.(exitCoder)
		if !ok {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = e.ExitCode()
	}
	if want := args[0]; want != strconv.Itoa(got) {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}

func wantMatches(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: glob pattern N")
	}
	names, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if args[1] != strconv.Itoa(len(names)) {
		ts.Fatalf("%d files match %s: %v", len(names), args[0], names)
	}
}

func makeArchive(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: archive OUT DIR")
	}
	out, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	defer out.Close()
	var w io.Closer
	if strings.HasSuffix(args[0], ".zip") {
		z := zip.NewWriter(out)
		err, w = z.AddFS(os.DirFS(ts.MkAbs(args[1]))), z
	} else {
		var to io.WriteCloser = out
		if strings.HasSuffix(args[0], ".gz") {
			to = gzip.NewWriter(out)
			defer to.Close()
		}
		t := tar.NewWriter(to)
		err, w = t.AddFS(os.DirFS(ts.MkAbs(args[1]))), t
	}
	ts.Check(err)
	ts.Check(w.Close())
}

func unhex(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: unhex to from")
	}
	data, err := hex.DecodeString(strings.Join(strings.Fields(ts.ReadFile(args[1])), ""))
	ts.Check(err)
	ts.Check(os.MkdirAll(filepath.Dir(ts.MkAbs(args[0])), 0o755))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o644))
}
