package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/fleet"
	"federator.dev/federator/pkg/clusterinformers"
)

const help = `Compare what a running server holds with what the members have, now.

The server lists the metadata of each kind of each member, at the resourceVersion up to which it has
applied the member's events, and looks every item up in what it held then. What differs is listed
again. Audits also run by themselves, as audit in the configuration says; this one is within the same
budget, so that a large member takes its time.

The exit code is 1 where something differed, and 3 where something could not be compared.

  federator audit
  federator audit fleet/eu-1
  federator audit fleet/eu-1 Deployment.apps`

const (
	defaultServer = "http://" + config.DefaultAdmin
	// maxLine bounds a line of the server's response.
	maxLine = 1 << 20
)

// options are the flags of `federator audit`.
type options struct {
	server, output string
	member, kind   string
}

func Command() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "audit [MEMBER] [KIND]",
		Short: "Compare what is held with what the members have",
		Long:  help,
		Args:  cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.output != "" && opts.output != "json" {
				return fmt.Errorf("--output %q is not json", opts.output)
			}
			if len(args) > 0 {
				opts.member = args[0]
			}
			if len(args) > 1 {
				opts.kind = args[1]
			}
			return run(cmd.Context(), &opts, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&opts.server, "server", defaultServer, "`URL` of the admin endpoint of a running server")
	cmd.Flags().StringVarP(&opts.output, "output", "o", "", "json: a line for each result")
	return cmd
}

func run(ctx context.Context, opts *options, out io.Writer) error {
	var results []clusterinformers.AuditResult
	err := request(ctx, opts, func(line []byte, r *clusterinformers.AuditResult) error {
		results = append(results, *r)
		if opts.output != "json" {
			return nil
		}
		_, err := out.Write(append(line, '\n'))
		return err
	})
	if err != nil {
		return err
	}
	if opts.output == "" {
		if _, err := out.Write(table(results, console.Colored(out))); err != nil {
			return err
		}
	}
	return verdict(results)
}

// request has the server audit, and calls each for every result.
func request(ctx context.Context, opts *options, each func(line []byte, r *clusterinformers.AuditResult) error) error {
	u, err := url.Parse(opts.server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--server %q is not a URL such as %s", opts.server, defaultServer)
	}
	u = u.JoinPath("audits")
	q := url.Values{}
	for name, value := range map[string]string{"member": opts.member, "kind": opts.kind} {
		if value != "" {
			q.Set(name, value)
		}
	}
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no server is running (start one with `federator serve`): %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) //nolint:errcheck // the status says enough
		return fmt.Errorf("%s: %s: %.200s", u, resp.Status, console.Printable(string(text)))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var l fleet.AuditLine
		switch err := json.Unmarshal(lines.Bytes(), &l); {
		case err != nil:
			return fmt.Errorf("%s: this is not an admin endpoint of federator: %w", u, err)
		case l.End != nil && l.End.Error != "":
			return errors.New(console.Printable(l.End.Error))
		case l.End != nil:
			return nil
		case l.AuditResult == nil:
			continue
		}
		if err := each(bytes.Clone(lines.Bytes()), l.AuditResult); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: the response has no end: %w", u, errors.Join(lines.Err(), io.ErrUnexpectedEOF))
}

// verdict is the error of a command that has found differences, or could not compare everything.
func verdict(results []clusterinformers.AuditResult) error {
	different, unknown := 0, 0
	for _, r := range results {
		switch {
		case r.Outcome == "equal", r.Outcome == "listed" && r.Repaired: // what was listed is what the member has
		case r.Outcome == "different":
			different++
		default:
			unknown++
		}
	}
	switch {
	case len(results) == 0:
		return exit.WithCode(errors.New("nothing is held that could be compared"), exit.CodeUnknown)
	case different > 0:
		return exit.Findings(fmt.Sprintf("%d kinds of members were not held as the members have them", different))
	case unknown > 0:
		return exit.WithCode(fmt.Errorf("%d kinds of members could not be compared", unknown), exit.CodeUnknown)
	}
	return nil
}

// table writes a line for each result.
func table(results []clusterinformers.AuditResult, color bool) []byte {
	if len(results) == 0 {
		return []byte("Nothing is held.\n")
	}
	slices.SortFunc(results, func(a, b clusterinformers.AuditResult) int {
		return strings.Compare(a.Member+" "+string(a.Kind)+" "+a.Namespace, b.Member+" "+string(b.Kind)+" "+b.Namespace)
	})
	t := console.NewTable("MEMBER", "KIND", "NAMESPACE", "OUTCOME", "OBJECTS", "CONTENT", "VERSION", "TOOK", "DETAIL")
	for _, r := range results {
		t.AddRow(
			console.Cell{Text: r.Member}, console.Cell{Text: string(r.Kind)}, console.Cell{Text: r.Namespace}, outcomeCell(r.Outcome),
			console.Cell{Text: fmt.Sprint(r.Objects), Right: true}, console.Cell{Text: fmt.Sprint(r.Bodies), Right: true},
			console.Cell{Text: r.ResourceVersion}, console.Cell{Text: r.Took.Round(time.Millisecond).String(), Right: true}, console.Cell{Text: detail(r)},
		)
	}
	return t.Render(color)
}

func outcomeCell(outcome string) console.Cell {
	c := console.Cell{Text: outcome, Color: console.Yellow}
	switch outcome {
	case "equal":
		c.Color = console.Green
	case "different":
		c.Color = console.Red
	}
	return c
}

// detail says what differs, and whether it was repaired.
func detail(r clusterinformers.AuditResult) string {
	if len(r.Differences) == 0 {
		return r.Message
	}
	var parts []string
	for cause, n := range r.Differences {
		parts = append(parts, fmt.Sprintf("%d %s", n, cause))
	}
	slices.Sort(parts)
	text := strings.Join(parts, ", ")
	if len(r.Examples) > 0 {
		text += ", such as " + r.Examples[0]
	}
	if r.Repaired {
		return text + "; listed again"
	}
	return text + "; being listed again"
}
