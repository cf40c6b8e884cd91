package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/stokerdata/stoker/internal/units"
)

// spanValue is the value of a flag that takes plain numbers as seconds, and times.
type spanValue time.Duration

func (s *spanValue) String() string { return time.Duration(*s).String() }

// Type is the name of the value in the help.
func (s *spanValue) Type() string { return "seconds" }

// Set reads "15", "1.5" or "2m".
func (s *spanValue) Set(text string) error {
	d, err := units.ParseSpan(text)
	if err == nil {
		*s = spanValue(d)
	}
	return err
}

// spanVar adds a flag for a duration. Without a unit it is in seconds.
func spanVar(flags *pflag.FlagSet, to *time.Duration, name string, value time.Duration, usage string) {
	*to = value
	flags.Var((*spanValue)(to), name, usage)
	if value == 0 {
		flags.Lookup(name).DefValue = "" // the help says what happens without it
	}
}
