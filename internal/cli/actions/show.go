package actions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
)

func showCommand(hub *hubFlags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one Action and what it changes",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "json", "yaml"}, output) {
				return exit.BadInput(fmt.Errorf("--output %q is not json or yaml", output))
			}
			client, err := hub.open()
			if err != nil {
				return err
			}
			a, err := client.Action(cmd.Context(), actionName(args[0]))
			if err != nil {
				return err
			}
			a.ManagedFields = nil
			text, err := renderAction(a, output, time.Now(), console.Colored(cmd.OutOrStdout()))
			if err == nil {
				_, err = cmd.OutOrStdout().Write(text)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

// actionName is a name as list -o name prints it, or without the resource.
func actionName(arg string) string {
	if _, name, ok := strings.Cut(arg, "/"); ok {
		return name
	}
	return arg
}

func renderAction(a *v1alpha1.Action, output string, now time.Time, color bool) ([]byte, error) {
	switch output {
	case "json":
		b, err := json.MarshalIndent(a, "", "  ")
		return append(b, '\n'), err
	case "yaml":
		return yaml.Marshal(a)
	}
	return actionText(a, now, color), nil
}

// actionText writes one Action: what it is, then what it changes.
func actionText(a *v1alpha1.Action, now time.Time, color bool) []byte {
	s, st, t := &a.Spec, &a.Status, &a.Spec.Target
	head := console.NewTable()
	line := func(name, text string) {
		if text != "" {
			head.AddRow(console.Cell{Text: name + ":"}, console.Cell{Text: text})
		}
	}
	line("Name", a.Name)
	phase := phaseCell(st.Phase)
	head.AddRow(console.Cell{Text: "Phase:"}, phase)
	line("Message", st.Message)
	line("Manager", st.Manager)
	line("Policy", fmt.Sprintf("%s (package %s)", s.Binding, s.Package))
	line("Origin", originText(s.Origin))
	line("Violation", s.Violation)
	line("Subject", s.Subject)
	line("Reason", s.Reason)
	line("Rollback of", s.RollbackOf)
	line("Member", t.Member)
	line("Target", strings.TrimSpace(fmt.Sprintf("%s %s", t.Kind, strings.Trim(t.Namespace+"/"+t.Name, "/"))))
	line("Version", versionText(a))
	line("Verb", verbText(s))
	line("Acts as", s.ActAs)
	started := startedAt(a)
	line("Recorded", started.UTC().Format(time.RFC3339)+" ("+console.Age(now, &started)+" ago)")
	if st.EndedAt != nil {
		line("Ended", st.EndedAt.UTC().Format(time.RFC3339)+" (after "+st.EndedAt.Sub(started).Round(time.Millisecond).String()+")")
	}
	if st.Attempts > 0 {
		line("Failed requests", fmt.Sprint(st.Attempts))
	}
	line("Revision", s.Revision)
	line("Audit ID", s.AuditID)
	line("Trace", string(s.TraceID))
	if st.AcknowledgedBy != "" {
		text := st.AcknowledgedBy
		if st.AcknowledgedAt != nil {
			text += " at " + st.AcknowledgedAt.UTC().Format(time.RFC3339)
		}
		if st.AcknowledgedHalt != "" {
			text += ", halt " + st.AcknowledgedHalt
		}
		line("Acknowledged by", text)
	}
	line("Rollback requested", a.Labels[api.RollbackKey])
	line("Rollback", a.Annotations[api.RollbackOutcomeKey])
	b := bytes.NewBuffer(head.Render(color))
	writeChange(b, a, color)
	return b.Bytes()
}

func originText(o v1alpha1.Origin) string {
	text := o.Path
	if o.Commit != "" {
		text += " at " + string(o.Commit)
	}
	if o.Source != "" {
		text += " of " + o.Source
	}
	return strings.TrimSpace(text)
}

func versionText(a *v1alpha1.Action) string {
	text := a.Spec.Target.ResourceVersion
	if text == "" {
		text = "none"
	}
	if a.Status.ResourceVersion != "" {
		text += " -> " + a.Status.ResourceVersion
	}
	return text
}

func verbText(s *v1alpha1.ActionSpec) string {
	text := string(s.Verb)
	for _, more := range []string{string(s.PatchType), string(s.PropagationPolicy)} {
		if more != "" {
			text += ", " + more
		}
	}
	if s.Force {
		text += ", forced"
	}
	return text
}
