package main

import (
	"bytes"
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
	"sigs.k8s.io/yaml"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
)

const membersHelp = `Print the members and what is known of them, or one member with its scopes.

A running server is asked at --server. With --contexts, --hub-kubeconfig or
--config no server is needed: the members are followed for as long as it takes
until each has synced or been given up on.

  federator members
  federator members fleet/eu-1
  federator members --contexts dev,staging -o wide`

const (
	defaultServer = "http://" + defaultAdmin
	// localGiveUp is GiveUpAfter where somebody waits for the answer.
	localGiveUp = 30 * time.Second
	watchEvery  = 2 * time.Second
	// maxAnswerBytes bounds what is read of a server's answer.
	maxAnswerBytes = 256 << 20
)

// membersOptions are the flags of `federator members`.
type membersOptions struct {
	follow memberFlags
	server string
	output string
	watch  bool
	name   string // of the only member to print
}

func newMembersCommand() *cobra.Command {
	var opts membersOptions
	cmd := &cobra.Command{
		Use:   "members [NAME]",
		Short: "Print the members and what is known of them",
		Long:  membersHelp,
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
			return members(cmd.Context(), cmd.Flags(), &opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	opts.follow.register(cmd.Flags())
	cmd.Flags().Lookup("give-up-after").Usage = "when a member that has not synced is no longer waited for (default 30s)"
	cmd.Flags().Lookup("log-level").Usage = "debug, info, warn or error (default warn)"
	cmd.Flags().StringVar(&opts.server, "server", defaultServer, "`URL` of the admin endpoint of a running server")
	cmd.Flags().StringVarP(&opts.output, "output", "o", "", "wide, json or yaml")
	cmd.Flags().BoolVarP(&opts.watch, "watch", "w", false, "print again whenever something changes")
	return cmd
}

// fetcher gets the members, with their scopes.
type fetcher func(context.Context) (membersAnswer, error)

func members(ctx context.Context, fs *pflag.FlagSet, opts *membersOptions, out, stderr io.Writer) error {
	for _, flag := range []string{"contexts", "hub-kubeconfig", "config"} {
		if fs.Changed(flag) {
			if fs.Changed("server") {
				return fmt.Errorf("--server and --%s exclude each other", flag)
			}
			return localMembers(ctx, fs, opts, out, stderr)
		}
	}
	return show(ctx, opts, out, func(ctx context.Context) (membersAnswer, error) { return askServer(ctx, opts.server) })
}

// localMembers follows the members itself.
func localMembers(ctx context.Context, fs *pflag.FlagSet, opts *membersOptions, out, stderr io.Writer) error {
	cfg, err := opts.follow.load(fs, func(c *Config) {
		if !fs.Changed("give-up-after") {
			c.GiveUpAfter = localGiveUp
		}
		if !fs.Changed("log-level") {
			c.Log.Level = "warn"
		}
	})
	if err != nil {
		return err
	}
	log, err := newLogger(stderr, cfg.Log)
	if err != nil {
		return err
	}
	fleet, err := newFleet(cfg, aggregate.Block(1), log, nil)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	manager := startPart(ctx, fleet.manager.Run, failed)
	err = fleet.waitReady(ctx, failed)
	if err == nil {
		err = show(ctx, opts, out, func(context.Context) (membersAnswer, error) { return fleet.answer(true), nil })
	}
	return errors.Join(err, manager.stop())
}

// waitReady waits until every member has synced or been given up on.
func (f *fleet) waitReady(ctx context.Context, failed <-chan error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, _ := f.manager.Ready(); ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-tick.C:
		}
	}
}

// askServer gets the members from a running server.
func askServer(ctx context.Context, server string) (membersAnswer, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return membersAnswer{}, fmt.Errorf("--server %q is not a URL such as %s", server, defaultServer)
	}
	u = u.JoinPath("members")
	u.RawQuery = "details=true"
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return membersAnswer{}, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return membersAnswer{}, fmt.Errorf("no server answers (start one with `federator serve`, or pass --contexts): %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return membersAnswer{}, fmt.Errorf("%s: %w", u, err)
	}
	if resp.StatusCode != http.StatusOK {
		return membersAnswer{}, fmt.Errorf("%s: %s: %.200s", u, resp.Status, printable(string(body)))
	}
	var answer membersAnswer
	if err := json.Unmarshal(body, &answer); err != nil {
		return membersAnswer{}, fmt.Errorf("%s: this is not an admin endpoint of federator: %w", u, err)
	}
	return answer, nil
}

// show prints what fetch gets, once or until ctx is done.
func show(ctx context.Context, opts *membersOptions, out io.Writer, fetch fetcher) error {
	color, clear := colored(out), ""
	if color && opts.watch {
		clear = "\x1b[H\x1b[2J"
	}
	var last []byte
	for {
		answer, err := fetch(ctx)
		if err != nil {
			return err
		}
		text, err := render(answer, opts, color)
		if err != nil {
			return err
		}
		if !bytes.Equal(text, last) {
			if _, err := fmt.Fprintf(out, "%s%s", clear, text); err != nil {
				return err
			}
			last = text
		}
		if !opts.watch {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}

// render writes an answer in the form that was asked for.
func render(answer membersAnswer, opts *membersOptions, color bool) ([]byte, error) {
	if opts.name != "" {
		m, err := pick(answer.Members, opts.name)
		if err != nil {
			return nil, err
		}
		answer.Members = []clusterinformers.MemberStatus{m}
	}
	switch opts.output {
	case "json":
		b, err := json.MarshalIndent(answer, "", "  ")
		return append(b, '\n'), err
	case "yaml":
		return yaml.Marshal(answer)
	}
	if opts.name != "" {
		return memberText(answer.Members[0], answer.Time, color), nil
	}
	return membersTable(answer, opts.output == "wide", color), nil
}

// pick returns the member of a name, which may lack its namespace where that
// leaves no doubt.
func pick(members []clusterinformers.MemberStatus, name string) (clusterinformers.MemberStatus, error) {
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
		return clusterinformers.MemberStatus{}, fmt.Errorf("member %q is not known", name)
	default:
		return clusterinformers.MemberStatus{}, fmt.Errorf("member %q: there are %d of that name; give <namespace>/<name>", name, len(found))
	}
}
