package formattest

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/drivertest"
)

// Tables makes a folder with tables of a format and the files that they name.
func Tables(t testing.TB, format string) string {
	dir := t.TempDir()
	var m bytes.Buffer
	if err := png.Encode(&m, image.NewGray(image.Rect(0, 0, 3, 2))); err != nil {
		t.Fatal(err)
	}
	for f := range 3 {
		var out bytes.Buffer
		w := csv.NewWriter(&out)
		if format == "tsv" {
			w.Comma = '\t'
		}
		if format != "jsonl" {
			_ = w.Write([]string{"file", "class", "n", "x", "caption", "boxes"})
		}
		for i := range 20 {
			name := fmt.Sprintf("img/%d-%d.png", f, i)
			drivertest.Put(t, dir, name, append(m.Bytes(), byte(i)))
			caption := fmt.Sprintf("row %d, \"quoted\",\nÄ line %s", i, strings.Repeat("é", i))
			var boxes [][4]int
			for k := range i % 3 {
				boxes = append(boxes, [4]int{k, i, 3, 4})
			}
			b, _ := json.Marshal(boxes)
			if boxes == nil {
				b = []byte("[]")
			}
			if format == "jsonl" {
				row, _ := json.Marshal(map[string]any{"file": name, "class": []string{"dog", "cat"}[i%2], "n": i, "x": float64(i) / 4, "caption": caption, "boxes": json.RawMessage(b)})
				out.Write(append(row, '\n'))
				continue
			}
			_ = w.Write([]string{name, []string{"dog", "cat"}[i%2], fmt.Sprint(i), fmt.Sprint(float64(i) / 4), caption, string(b)})
		}
		w.Flush()
		drivertest.Put(t, dir, fmt.Sprintf("part-%d.%s", f, format), out.Bytes())
	}
	return dir
}
