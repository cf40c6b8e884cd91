// Command man writes the manual pages of stoker into a folder: go run ./scripts/man DIR
package main

import (
	"log"
	"os"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/stokerdata/stoker/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go run ./scripts/man DIR")
	}
	root := cli.Command()
	root.DisableAutoGenTag = true
	// The date of the pages is a part of the release, so that the same source gives the same files.
	date := time.Unix(0, 0).UTC()
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := time.ParseDuration(text + "s")
		if err != nil {
			log.Fatalf("SOURCE_DATE_EPOCH is %q: expected seconds", text)
		}
		date = time.Unix(int64(seconds.Seconds()), 0).UTC()
	}
	if err := os.MkdirAll(os.Args[1], 0o755); err != nil {
		log.Fatal(err)
	}
	header := &doc.GenManHeader{Section: "1", Source: "Stoker " + root.Version, Manual: "Stoker", Date: &date}
	if err := doc.GenManTree(root, header, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
