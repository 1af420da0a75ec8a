// Package history is the command that shows which versions of a policy took effect, and what
// they changed.
package history

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/hubclient"
	"federator.dev/federator/internal/exit"
)

const help = `Show the versions of a FleetPolicy that took effect, the newest first: since when, from
which commit, who signed that or changed the parameters, and how many violations each
made appear and vanish on the fleet as it was.

A version is the policy's package, with what it imports, and its parameters. The hub
keeps the last 20, in the status of the FleetPolicy; what a version changed is not known
where it took effect while federator was not running, or in one wave after another.

A version that rolls out is shown above: how far it has come, and how its verdicts differ
from those of the version in effect. -o json and yaml list the versions that took effect.

  federator policy history image-registry
  federator policy history image-registry -o json`

// outputs are the values of --output.
var outputs = []string{"table", "wide", "json", "yaml"}

func Command(version string) *cobra.Command {
	hub := hubclient.Flags{Version: version}
	output := "table"
	cmd := &cobra.Command{
		Use:   "history POLICY",
		Short: "Show the versions of a policy, and what they changed",
		Long:  help,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(outputs, output) {
				return exit.BadInput(fmt.Errorf("--output %q is not one of %s", output, strings.Join(outputs, ", ")))
			}
			c, err := hub.Open()
			if err != nil {
				return err
			}
			fp, err := c.Policy(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if r := fp.Status.Rollout; r != nil && r.Candidate != nil && (output == "table" || output == "wide") {
				if _, err := io.WriteString(cmd.OutOrStdout(), candidate(r.Candidate, time.Now())+"\n"); err != nil {
					return err
				}
			}
			return write(cmd.OutOrStdout(), fp.Status.Versions, output, time.Now(), console.Colored(cmd.OutOrStdout()))
		},
	}
	hub.Register(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", output, strings.Join(outputs, ", "))
	return cmd
}

// candidate says how far a version has come that is to take effect.
func candidate(c *v1alpha1.CandidateVersion, now time.Time) string {
	out := fmt.Sprintf("Version %s rolls out since %s: %s", short(string(c.Digest)), console.Age(now, &c.Began.Time), c.Phase)
	if c.Phase == v1alpha1.RolloutWaves {
		out += fmt.Sprintf(" %d", c.Waves)
	}
	out += fmt.Sprintf(", since %s\n", console.Age(now, &c.Since.Time))
	if c.Message != "" {
		out += "  " + console.Printable(c.Message) + "\n"
	}
	e := c.Evidence
	if e == nil {
		return out + "  it is not compared with the version in effect yet\n"
	}
	out += fmt.Sprintf("  of %d subjects: %d new violations, %d gone, %d new errors", e.Subjects, e.New, e.Gone, e.Errors)
	if e.Cost != nil {
		out += fmt.Sprintf(", %d%% of the cost", *e.Cost)
	}
	if !e.Complete {
		out += "; not all of it is known yet"
	}
	return out + "\n"
}

// write writes versions, which are oldest first, the newest first.
func write(w io.Writer, versions []v1alpha1.PolicyVersion, output string, now time.Time, color bool) error {
	list := slices.Clone(versions)
	slices.Reverse(list)
	switch output {
	case "json":
		return console.WriteJSON(w, append([]v1alpha1.PolicyVersion{}, list...))
	case "yaml":
		text, err := yaml.Marshal(append([]v1alpha1.PolicyVersion{}, list...))
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "No version has taken effect yet.")
		return err
	}
	t := console.NewTable("VERSION", "SINCE", "SOURCE", "COMMIT", "BY", "APPEARED", "VANISHED", "MEMBERS")
	if output == "wide" {
		t.AddHeader("GENERATION", "PACKAGE", "PATH")
	}
	for i := range list {
		t.AddRow(row(&list[i], output == "wide", now)...)
	}
	_, err := w.Write(t.Render(color))
	return err
}

func row(v *v1alpha1.PolicyVersion, wide bool, now time.Time) []console.Cell {
	origin := v.Origin
	if origin == nil {
		origin = &v1alpha1.Origin{}
	}
	appeared, vanished, members := "unknown", "unknown", "unknown"
	if c := v.Changes; c != nil {
		appeared, vanished, members = strconv.FormatInt(c.Appeared, 10), strconv.FormatInt(c.Vanished, 10), strconv.Itoa(int(c.Members))
	}
	cells := []string{
		short(string(v.Digest)), console.Age(now, &v.Since.Time), origin.Source, short(string(origin.Commit)), string(v.By), appeared, vanished, members,
	}
	if wide {
		cells = append(cells, strconv.FormatInt(v.Generation, 10), short(string(v.Package)), origin.Path)
	}
	out := make([]console.Cell, len(cells))
	for i, text := range cells {
		out[i] = console.Cell{Text: console.Printable(text)}
	}
	return out
}

// short is how people write a hash.
func short(hash string) string { return hash[:min(len(hash), 12)] }
