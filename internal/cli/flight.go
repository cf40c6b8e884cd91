package cli

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stokerdata/stoker/internal/counters"
	"github.com/stokerdata/stoker/internal/feed"
	"github.com/stokerdata/stoker/internal/feed/feedclient"
	"github.com/stokerdata/stoker/internal/feed/feedserver"
	"github.com/stokerdata/stoker/internal/pipeline"
)

// flightFlags are the flags of a server for other machines.
type flightFlags struct {
	address, data, config string
	cert, key, ca, secret string
	insecure              bool
}

func (f *flightFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "flight", "", "build batches for other machines on this address, such as :7443")
	flags.StringVar(&f.data, "data", "", "with --flight, the path or URL of the data; default: that of --config")
	flags.StringVar(&f.config, "config", "", "with --flight, the file with the pipeline (loader.save_pipeline in Python)")
	flags.StringVar(&f.cert, "tls-cert", "", "with --flight, the certificate of this server (PEM)")
	flags.StringVar(&f.key, "tls-key", "", "with --flight, the key of the certificate (PEM)")
	flags.StringVar(&f.ca, "tls-ca", "", "with --flight, the authority that signed the certificates of clients (PEM)")
	flags.StringVar(&f.secret, "flight-secret", "", "with --flight, a file with the secret of tokens")
	flags.BoolVar(&f.insecure, "insecure", false, "with --flight, serve other machines without TLS")
}

// check refuses flags that do not fit together.
func (f *flightFlags) check() error {
	host, _, err := net.SplitHostPort(f.address)
	switch {
	case err != nil:
		return usageError("stoker serve --flight :7443 --config FILE", "--flight %q is not an address", f.address)
	case f.config == "":
		return usageError("stoker serve --flight :7443 --config FILE", "--config is missing")
	case (f.cert == "") != (f.key == ""):
		return usageError("stoker serve --help", "--tls-cert and --tls-key go together")
	case f.ca != "" && f.cert == "":
		return usageError("stoker serve --help", "--tls-ca needs --tls-cert and --tls-key")
	}
	ip := net.ParseIP(host)
	if f.cert == "" && !f.insecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return usageError("stoker serve --help", "--flight %s would serve other machines without TLS: set --tls-cert and --tls-key, or --insecure in a network that you trust", f.address)
	}
	return nil
}

// serveFlight serves batches to other machines until the command is interrupted.
func serveFlight(app *App, f *flightFlags, metrics string) error {
	if err := f.check(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(app.Stderr, nil))
	opt := feedserver.Options{Log: log}
	var err error
	if f.cert != "" {
		if opt.TLS, err = feedserver.TLS(f.cert, f.key, f.ca); err != nil {
			return &Error{Msg: "cannot serve", Err: err}
		}
	}
	if f.secret != "" {
		if opt.Secret, err = feed.ReadSecret(f.secret); err != nil {
			return &Error{Msg: "cannot serve", Err: err}
		}
	}
	text, err := os.ReadFile(f.config)
	if err != nil {
		return &Error{Msg: "cannot serve", Err: err}
	}
	cfg, err := pipeline.ParseConfig(text)
	if err != nil {
		return &Error{Msg: "cannot serve: " + f.config, Err: err}
	}
	if f.data != "" {
		cfg.Source = f.data
	}
	cfg = feedserver.Config(cfg)
	cfg.Say = func(what string) { log.Warn(what) }
	if spec := os.Getenv(faultsVariable); spec != "" {
		if cfg.Decorate, err = parseFaults(spec); err != nil {
			return err
		}
	}
	engine, err := openStatus(log, metrics)
	if err != nil {
		return err
	}
	defer engine.Close()
	pipeline.OwnProcess()
	p, err := pipeline.Open(app.Context, cfg)
	if err != nil {
		return &Error{Msg: "cannot serve", Err: err}
	}
	defer p.Close()
	shown := engine.Add(p, 0)
	defer shown.Close()
	// A server works without counters for other processes as well.
	if counters, err := counters.Publish(0, func() counters.Counters { return countersOf(p) }); err == nil {
		defer counters.Close()
	}
	server, err := feedserver.New(feedserver.Of(p), opt)
	if err != nil {
		return &Error{Msg: "cannot serve", Err: err}
	}
	l, err := net.Listen("tcp", f.address)
	if err != nil {
		return &Error{Msg: "cannot serve", Err: err}
	}
	id := p.Hashes()
	log.Info("serving", "flight", l.Addr().String(), "manifest", id.Manifest, "pipeline", id.Pipeline, "seed", cfg.Seed, "data", p.Info().URL, "pid", os.Getpid())
	if err = server.Serve(app.Context, l); err != nil {
		return &Error{Msg: "cannot serve", Err: err}
	}
	log.Info("stopped", "flight", l.Addr().String())
	return nil
}

// openFeeders connects a pipeline to its feeders.
func openFeeders(f *pipeline.Feeders, p *pipeline.Pipeline) (pipeline.Remote, error) {
	cfg := p.Config()
	return feedclient.Open(feedclient.Options{Feeders: f, ID: p.Hashes(), Seed: cfg.Seed, BatchSize: cfg.BatchSize, Say: cfg.Say})
}

func newTokenCommand(app *App) *cobra.Command {
	var secret string
	var expires time.Duration
	cmd := &cobra.Command{
		Use:     "token --secret FILE MANIFEST PIPELINE",
		Short:   "Make a token for the batches of a server",
		GroupID: groupEngine,
		Long: `Make a token for the batches of a server.

A server that was started with --flight-secret FILE builds batches only for clients that
have a token. A token is made with the same file. It is for one manifest and one pipeline,
which the server logs when it starts, and it expires.

  stoker token --secret secret.txt MANIFEST PIPELINE > token.txt`,
		Example: "  stoker token --secret secret.txt --expires 12h 5f0c2d81 a19e77b4 > token.txt",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if secret == "" {
				return usageError("stoker token --help", "--secret is missing")
			}
			if expires <= 0 {
				return usageError("stoker token --help", "--expires is %v, must be more than 0", expires)
			}
			key, err := feed.ReadSecret(secret)
			if err != nil {
				return &Error{Msg: "cannot make a token", Err: err}
			}
			_, err = fmt.Fprintln(app.Stdout, key.Token(feed.Claims{Manifest: args[0], Pipeline: args[1], Expires: time.Now().Add(expires).Unix()}))
			return err
		},
	}
	cmd.Flags().StringVar(&secret, "secret", "", "the file with the secret of the servers")
	cmd.Flags().DurationVar(&expires, "expires", 24*time.Hour, "how long the token is valid")
	return cmd
}
