package source

import (
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source/view"
)

// Hide returns a message about the data at rawURL without what may be secret in the URL: the user and password, and
// the values of options that no format and no store has, such as a mistyped ?aws_secret_access_key=.
func Hide(rawURL, message string) string {
	at := strings.IndexAny(rawURL, "?#")
	if at < 0 {
		return hideUser(rawURL, message)
	}
	message = hideUser(rawURL[:at], message)
	for part := range strings.FieldsFuncSeq(rawURL[at:], func(r rune) bool { return strings.ContainsRune("?#&", r) }) {
		if name, value, ok := strings.Cut(part, "="); ok && value != "" && !strings.Contains(value, "*") && !isOption(name) { // a pattern of files is a field
			message = strings.ReplaceAll(message, name+"="+value, name+"=...")
		}
	}
	return message
}

// hideUser removes the user and password of a URL from a message.
func hideUser(rawURL, message string) string {
	_, rest, ok := strings.Cut(rawURL, "://")
	host, _, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, '@'); ok && i > 0 {
		message = strings.ReplaceAll(message, host[:i+1], "")
	}
	return message
}

// isOption reports whether a format, a view or a store has an option of this name.
func isOption(name string) bool {
	return strings.Contains(name, ":") || slices.Contains(view.Keys(), name) || stores.IsOption(name) ||
		slices.ContainsFunc(formats, func(f *format.Format) bool { return f.Param(name) != nil })
}

// hidden is an error without what may be secret in a URL.
type hidden struct {
	error
	text string
}

// Error implements error.
func (h *hidden) Error() string { return h.text }

// Unwrap returns the error with its own text, for its class.
func (h *hidden) Unwrap() error { return h.error }

// hide applies Hide to an error.
func hide(rawURL string, err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	shown := Hide(rawURL, text)
	if shown == text {
		return err
	}
	return &hidden{err, shown}
}
