package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/store"
)

// A message shows the options that something has, and hides the values of all others and the password.
func TestHide(t *testing.T) {
	for url, want := range map[string]string{
		"s3://b/x?aws_secret_access_key=S/E+C=&region=eu-1": "cannot open s3://b/x?aws_secret_access_key=...&region=eu-1: no",
		"data?split=train&token=SEC":                        "cannot open data?split=train&token=...: no",
		"data?image:image=path#where=label<3&key=SEC":       "cannot open data?image:image=path#where=label<3&key=...: no",
		"https://me:SEC@host/x?sig=SEC":                     "cannot open https://host/x?sig=...: no",
		"zip:s3://me:SEC@b/x#?sig=SEC":                      "cannot open zip:s3://b/x#?sig=...: no",
		"a folder":                                          "cannot open a folder: no",
		"x?a=b":                                             "cannot open x?a=...: no",
	} {
		if got := Hide(url, "cannot open "+url+": no"); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

// No source shows the value of an option that it does not have, whatever is wrong.
func TestErrorsHideOptions(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AZURE_STORAGE_ACCOUNT", "x")
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no server is asked
	for _, place := range []string{dir, dir + "/none", "file://" + dir, "file://host/x", "s3:/b/x", "s3://b/x", "gs://bucket/x", "az://c/x", "ftp://h/x", "s3://u:SECRET@b/x", "files:" + dir, "none:" + dir} {
		for _, query := range []string{"?aws_secret_access_key=SECRET", "?split=a&token=SECRET", "#token=SECRET", "#?token=SECRET", "?x=%SECRET", "?token=SECRET/../x", "?token=SECRET#where=x"} {
			_, err := Open(ctx, place+query, nil)
			if err == nil || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%s%s: %v", place, query, err)
			}
		}
	}
	if err := hide("a?token=SECRET", fmt.Errorf("a?token=SECRET: %w", store.ErrNotExist)); !errors.Is(err, store.ErrNotExist) || err.Error() != "a?token=...: file does not exist" {
		t.Errorf("the class is lost: %v", err)
	}
}
