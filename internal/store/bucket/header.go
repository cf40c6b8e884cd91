package bucket

import (
	"net/http"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/store/ranged"
)

// InfoOf describes an object from response headers, for servers whose versions are entity tags.
func InfoOf(key string, size int64, h http.Header) (Info, error) {
	if size < 0 {
		return Info{}, ranged.Invalid("the server does not send its size")
	}
	i := Info{Key: key, Size: size}
	// A missing time is not an error.
	i.ModTime, _ = http.ParseTime(h.Get("Last-Modified"))
	i.Version = VersionOf(h.Get("ETag"), i.ModTime, size)
	i.Now, _ = http.ParseTime(h.Get("Date"))
	return i, nil
}

// VersionOf returns the version of an object: its entity tag in the form of headers, without the mark of weak tags, so
// that it is the same in listings and headers. Without a tag it is the modification time and the size.
func VersionOf(tag string, modified time.Time, size int64) string {
	tag = strings.TrimPrefix(tag, "W/")
	if tag != "" && tag[0] != '"' {
		tag = `"` + tag + `"`
	}
	return ranged.VersionOf(tag, modified, size)
}

// Match sets the headers for a condition.
func (c Condition) Match(h http.Header) {
	if c.Absent {
		h.Set("If-None-Match", "*")
	}
	if c.Version != "" {
		h.Set("If-Match", c.Version)
	}
}

// Written describes an object from the response headers to a put. A put with a condition needs an entity tag for the
// next condition.
func (c Condition) Written(key string, size int64, h http.Header) (Info, error) {
	i, err := InfoOf(key, size, h)
	if err == nil && c != (Condition{}) && !strings.HasPrefix(i.Version, `"`) {
		err = ranged.Invalid("the server does not send the version (ETag) of what it wrote, and locks need it: use a server or proxy that sends it")
	}
	return i, err
}

// IsCode reports whether a text is a service's name of an error, so that it can be shown.
func IsCode(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789."
	return s != "" && len(s) <= 64 && strings.Trim(s, letters) == ""
}
