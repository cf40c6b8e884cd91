package bucket

import (
	"errors"
	"net/http"
	"strings"
)

// InfoOf describes an object from response headers, for servers whose versions are entity tags.
func InfoOf(key string, size int64, h http.Header) (Info, error) {
	if size < 0 {
		return Info{}, errors.New("the server does not send its size")
	}
	i := Info{Key: key, Size: size, Version: Quoted(h.Get("ETag"))}
	// A missing time is not an error.
	i.ModTime, _ = http.ParseTime(h.Get("Last-Modified"))
	i.Now, _ = http.ParseTime(h.Get("Date"))
	return i, nil
}

// Quoted returns an entity tag in the form of headers.
func Quoted(tag string) string {
	if tag == "" || strings.HasPrefix(tag, `"`) || strings.HasPrefix(tag, "W/") {
		return tag
	}
	return `"` + tag + `"`
}

// IsCode reports whether a text is a service's name of an error, so that it can be shown.
func IsCode(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789."
	return s != "" && len(s) <= 64 && strings.Trim(s, letters) == ""
}
