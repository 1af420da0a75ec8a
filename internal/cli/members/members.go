package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/component"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

const help = `Print the members and their state, or one member with its scopes.

The members are read from a running server at --server. With --contexts,
--hub-kubeconfig or --config no server is needed: the command connects to the members
itself and waits until each has synced or --give-up-after has passed.

A member is ready when it is connected and has everything that it is to have. With --watch
a line follows for each member that changes; memory, freshness and ages are no changes.

  federator members
  federator members fleet/eu-1
  federator members --not-ready --watch
  federator members -l env=prod --state Disconnected,Refused
  federator members --contexts dev,staging -o wide`

const (
	defaultServer = "http://" + config.DefaultAdmin
	// pollInterval is the time between polls of a watch. It is longer where a poll takes the
	// server more than a tenth of it.
	pollInterval = 2 * time.Second
	// maxResponse bounds the size of a server's response.
	maxResponse = 256 << 20
	// pageSize and detailedPageSize are the members that are requested at once.
	pageSize         = 500
	detailedPageSize = 50
)

// options are the flags of `federator members`.
type options struct {
	connect  config.Flags
	server   string
	output   string
	watch    bool
	name     string // of the only member to print
	selector string
	states   []string
	notReady bool

	version string // of federator
}

func Command(version string) *cobra.Command {
	opts := options{version: version}
	cmd := &cobra.Command{
		Use:   "members [NAME]",
		Short: "Print the members and their state",
		Long:  help,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch opts.output {
			case "", "wide", "json", "yaml":
			default:
				return fmt.Errorf("--output %q is not wide, json or yaml", opts.output)
			}
			if len(args) == 1 {
				opts.name = args[0]
			}
			return run(cmd.Context(), cmd.Flags(), &opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	opts.connect.Register(cmd.Flags())
	cmd.Flags().Lookup("give-up-after").Usage = "how long to wait for a member that has not synced (default 30s)"
	cmd.Flags().Lookup("log-level").Usage = "debug, info, warn or error (default warn)"
	cmd.Flags().StringVar(&opts.server, "server", defaultServer, "`URL` of the admin endpoint of a running server")
	cmd.Flags().StringVarP(&opts.output, "output", "o", "", "wide, json or yaml")
	cmd.Flags().BoolVarP(&opts.watch, "watch", "w", false, "print the members and then each that changes, until interrupted")
	cmd.Flags().StringVarP(&opts.selector, "selector", "l", "", "only members whose Clusters have these `labels`")
	cmd.Flags().StringSliceVar(&opts.states, "state", nil, "only members in these `states`: Connected, Disconnected, Refused")
	cmd.Flags().BoolVar(&opts.notReady, "not-ready", false, "only members that are not ready")
	return cmd
}

// query returns the query of the flags.
func (o *options) query() (q clusterinformers.MemberQuery, err error) {
	q = clusterinformers.MemberQuery{Name: o.name, NotReady: o.notReady, Details: o.name != "" || o.output == "json" || o.output == "yaml"}
	if o.selector != "" {
		if q.Selector, err = labels.Parse(o.selector); err != nil {
			return q, fmt.Errorf("--selector: %w", err)
		}
	}
	for _, text := range o.states {
		state, err := connection.ParseState(text)
		if err != nil {
			return q, fmt.Errorf("--state: %w", err)
		}
		q.States = append(q.States, state)
	}
	return q, nil
}

// fetcher gets the members that a query selects, or a page of them.
type fetcher func(context.Context, clusterinformers.MemberQuery) (fleet.Status, error)

// all gets all pages.
func (f fetcher) all(ctx context.Context, q clusterinformers.MemberQuery) (fleet.Status, error) {
	if q.Limit = pageSize; q.Details {
		q.Limit = detailedPageSize
	}
	out, err := f(ctx, q)
	for err == nil && out.Continue != "" {
		q.After = out.Continue
		var page fleet.Status
		page, err = f(ctx, q)
		page.Members = append(out.Members, page.Members...)
		out = page
	}
	return out, err
}

func run(ctx context.Context, fs *pflag.FlagSet, opts *options, out, stderr io.Writer) error {
	if _, err := opts.query(); err != nil {
		return err
	}
	for _, flag := range []string{"contexts", "hub-kubeconfig", "config"} {
		if fs.Changed(flag) {
			if fs.Changed("server") {
				return fmt.Errorf("--server and --%s are mutually exclusive", flag)
			}
			return localMembers(ctx, fs, opts, out, stderr)
		}
	}
	return show(ctx, opts, out, func(ctx context.Context, q clusterinformers.MemberQuery) (fleet.Status, error) {
		return fetchServer(ctx, opts.server, q)
	})
}

// localMembers connects to the members itself.
func localMembers(ctx context.Context, fs *pflag.FlagSet, opts *options, out, stderr io.Writer) error {
	cfg, err := opts.connect.Load(fs, func(c *config.Config) {
		if !fs.Changed("give-up-after") {
			c.GiveUpAfter = config.InteractiveGiveUpAfter
		}
		if !fs.Changed("log-level") {
			c.Log.Level = "warn"
		}
	})
	if err != nil {
		return err
	}
	log, err := config.NewLogger(stderr, cfg.Log)
	if err != nil {
		return err
	}
	f, err := fleet.New(cfg, fleet.Options{Revisions: aggregate.Block(1), UserAgent: "federator/" + opts.version, Logger: log})
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	manager := component.Start(ctx, f.Manager.Run, failed)
	err = f.WaitReady(ctx, failed)
	if err == nil {
		err = show(ctx, opts, out, func(_ context.Context, q clusterinformers.MemberQuery) (fleet.Status, error) { return f.Status(q), nil })
	}
	return errors.Join(err, manager.Stop())
}

// fetchServer gets members from a running server.
func fetchServer(ctx context.Context, server string, q clusterinformers.MemberQuery) (fleet.Status, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fleet.Status{}, fmt.Errorf("--server %q is not a URL such as %s", server, defaultServer)
	}
	u = u.JoinPath("members")
	u.RawQuery = fleet.MemberParams(q).Encode()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fleet.Status{}, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fleet.Status{}, fmt.Errorf("no server is running (start one with `federator serve`, or pass --contexts): %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return fleet.Status{}, fmt.Errorf("%s: %w", u, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fleet.Status{}, fmt.Errorf("%s: %s: %.200s", u, resp.Status, console.Printable(string(body)))
	}
	var status fleet.Status
	if err := json.Unmarshal(body, &status); err != nil {
		return fleet.Status{}, fmt.Errorf("%s: this is not an admin endpoint of federator: %w", u, err)
	}
	return status, nil
}

// show prints what fetch gets, once or until ctx is done.
func show(ctx context.Context, opts *options, out io.Writer, fetch fetcher) error {
	q, err := opts.query()
	if err != nil {
		return err
	}
	if opts.watch {
		return watchMembers(ctx, opts, out, fetch, q)
	}
	status, err := fetch.all(ctx, q)
	if err != nil {
		return err
	}
	text, err := render(status, opts, console.Colored(out))
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// render writes the members in the format of the flags.
func render(status fleet.Status, opts *options, color bool) ([]byte, error) {
	if opts.name != "" {
		m, err := findMember(status.Members, opts.name)
		if err != nil {
			return nil, err
		}
		status.Members = []clusterinformers.MemberStatus{m}
	}
	switch opts.output {
	case "json":
		b, err := json.MarshalIndent(status, "", "  ")
		return append(b, '\n'), err
	case "yaml":
		return yaml.Marshal(status)
	}
	if opts.name != "" {
		return memberText(status.Members[0], status.Time, color), nil
	}
	return membersTable(status, opts.output == "wide", color), nil
}

// findMember returns the member of a name; the namespace may be omitted if the name is unique.
func findMember(members []clusterinformers.MemberStatus, name string) (clusterinformers.MemberStatus, error) {
	var found []clusterinformers.MemberStatus
	for _, m := range members {
		if m.Name == name {
			return m, nil
		}
		if strings.HasSuffix(m.Name, "/"+name) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return clusterinformers.MemberStatus{}, fmt.Errorf("unknown member %q", name)
	default:
		return clusterinformers.MemberStatus{}, fmt.Errorf("member %q: %d members have this name; use <namespace>/<name>", name, len(found))
	}
}
