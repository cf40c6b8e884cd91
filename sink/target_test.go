package sink

import (
	"strings"
	"testing"
)

func TestUnknownPrefixes(t *testing.T) {
	for dst, want := range map[string]string{
		"tfr:out": "did you mean tfrecord:out?", "wds:out": "did you mean tar:out?", "webdataset:out": "did you mean tar:out?", "h5:x": "did you mean hdf5:x?",
		"parqet:x": "did you mean parquet:x?", "json:x.jsonl": "did you mean jsonl:x.jsonl?", "foo:out": "./foo:out", "s4://b/x": "did you mean s3?",
		"gcs://b/x": "did you mean gs?", "tar:gcs://b/x": "did you mean gs?", "tar:wdz:x": "./wdz:x",
	} {
		if _, err := ParseTarget(dst, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dst, err, want)
		}
	}
	for dst, want := range map[string]string{
		"./tfr:out": "./tfr:out", "tar:./tfr:out": "./tfr:out", "12:30": "12:30", "C:/x": "C:/x", "a/b:c": "a/b:c", "/x/tfr:out": "/x/tfr:out", "tar:out": "out", "file.tar": "file.tar",
		"s3://b/x": "s3://b/x",
	} {
		if target, err := ParseTarget(dst, ""); err != nil || target.Path != want {
			t.Errorf("%s: %+v, %v, want %s", dst, target, err, want)
		}
	}
}
