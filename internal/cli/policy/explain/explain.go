package explain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/cli/input"
	"federator.dev/federator/internal/cli/policy/evaluation"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/policyfiles"
	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/policy"
	"federator.dev/federator/pkg/policy/explain"
)

const help = `Explain the verdicts on one subject: which rules fired, line by line, what was read,
from which member and how fresh it was, and which of it is incomplete.

SUBJECT is an object as "<member> <kind> <namespace>/<name>", a member, or a key
of a view as key:<key>. Without --policy, all policies that evaluate it are explained.

  federator policy explain --policies policies/ -f manifests/ --policy federator.network.unique_host \
      fleet/eu-1 Ingress.networking.k8s.io shop/web
  federator policy explain --contexts dev,staging key:nginx`

func Command(version string) *cobra.Command {
	in := evaluation.NewFlags(version)
	var output string
	cmd := &cobra.Command{
		Use:   "explain SUBJECT",
		Short: "Explain a verdict",
		Long:  help,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return exit.BadInput(run(cmd, &in, strings.Join(args, " "), output))
		},
	}
	in.Register(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func run(cmd *cobra.Command, in *evaluation.Flags, text, output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("--output %q is not text or json", output)
	}
	of, err := parseSubject(text)
	if err != nil {
		return err
	}
	b, err := in.Load(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	fleet, err := in.Open(cmd, b)
	if err != nil {
		return err
	}
	x, err := explainSubject(cmd.Context(), b, fleet, of, in.Timeout)
	if err != nil {
		return err
	}
	if output == "json" {
		return console.WriteJSON(cmd.OutOrStdout(), x)
	}
	return x.write(cmd.OutOrStdout())
}

// parseSubject parses a subject on the command line.
func parseSubject(s string) (policy.Subject, error) {
	if key, ok := strings.CutPrefix(s, "key:"); ok {
		return policy.Subject{Key: key}, nil
	}
	bad := fmt.Errorf(`%q is not "<member> <kind> <namespace>/<name>", a member <namespace>/<name>, or key:<key>`, s)
	fields := strings.Fields(s)
	if len(fields) == 0 || strings.Count(fields[0], "/") != 1 {
		return policy.Subject{}, bad
	}
	switch len(fields) {
	case 1:
		return policy.Subject{Ref: aggregate.Ref{Member: fields[0]}}, nil
	case 3:
		namespace, name, ok := strings.Cut(fields[2], "/")
		if !ok {
			namespace, name = "", fields[2]
		}
		if name == "" {
			return policy.Subject{}, bad
		}
		return policy.Subject{Ref: aggregate.Ref{Member: fields[0], Kind: aggregate.Kind(fields[1]), Namespace: namespace, Name: name}}, nil
	}
	return policy.Subject{}, bad
}

// explanation explains the verdicts on one subject.
type explanation struct {
	Subject  policy.Subject        `json:"subject"`
	Revision aggregate.Revision    `json:"revision"`
	AsOf     time.Time             `json:"asOf"`
	Verdicts []explain.Explanation `json:"verdicts"` // by binding
	Heard    []lastContact         `json:"heard,omitempty"`

	titles map[string]string // of packages
}

// lastContact is when a scope that was read last heard from its member.
type lastContact struct {
	Member string         `json:"member"`
	Kind   aggregate.Kind `json:"kind"`
	At     time.Time      `json:"at"`
}

// explainSubject explains all verdicts of the bundle on a subject.
func explainSubject(ctx context.Context, b *policyfiles.Bundle, fleet *input.Fleet, of policy.Subject, budget time.Duration) (*explanation, error) {
	opts := evaluation.Options(b, fleet.AsOf, budget)
	state, err := policy.Evaluate(ctx, opts, fleet.Snapshot)
	if err != nil {
		return nil, err
	}
	x := &explanation{Subject: of, Revision: fleet.SourceRevision, AsOf: fleet.AsOf, titles: map[string]string{}}
	for v := range state.VerdictsOn(of) {
		one, err := explain.Explain(ctx, opts, state, v.Binding, of)
		if err != nil {
			return nil, err
		}
		x.Verdicts = append(x.Verdicts, *one)
		x.titles[one.Package] = b.Set.Package(one.Package).Title
		x.addContacts(fleet, one)
	}
	if len(x.Verdicts) == 0 {
		return nil, errNoVerdict(fleet, of)
	}
	return x, nil
}

// errNoVerdict says why no policy evaluates a subject.
func errNoVerdict(fleet *input.Fleet, of policy.Subject) error {
	if of.Ref.Member != "" {
		if _, ok := fleet.Member(of.Ref.Member); !ok {
			return fmt.Errorf("unknown member %q", of.Ref.Member)
		}
	}
	if of.Ref.Kind != "" {
		if _, ok := fleet.Get(of.Ref); !ok {
			info, _ := fleet.Scope(of.Ref.Member, of.Ref.Kind)
			return fmt.Errorf("object %s not found: the kind is %s in this member", of.Ref, console.WithReason(info.Status.State.String(), fleet.Reason(of.Ref.Member, of.Ref.Kind)))
		}
	}
	return fmt.Errorf("no policy evaluates %s", of)
}

// addContacts records the last contact of the scopes that were read.
func (x *explanation) addContacts(fleet *input.Fleet, one *explain.Explanation) {
	for _, r := range one.Reads {
		for _, s := range r.Scopes {
			c := lastContact{s.Member, s.Kind, fleet.LastContact(s.Member, s.Kind)}
			if !c.At.IsZero() && !slices.Contains(x.Heard, c) {
				x.Heard = append(x.Heard, c)
			}
		}
	}
}

// freshness returns the age of the last contact of a scope, "" if it is unknown.
func (x *explanation) freshness(s explain.Scope) string {
	for _, h := range x.Heard {
		if h.Member == s.Member && h.Kind == s.Kind {
			return fmt.Sprintf("last contact %s before", x.AsOf.Sub(h.At).Round(time.Millisecond))
		}
	}
	return ""
}

// write writes the explanations as text.
func (x *explanation) write(w io.Writer) error {
	p := &page{}
	p.line("%s, at revision %d as of %s", x.Subject, x.Revision, x.AsOf.UTC().Format(time.RFC3339))
	for i := range x.Verdicts {
		x.verdict(p, &x.Verdicts[i], console.Colored(w))
	}
	_, err := w.Write(p.Bytes())
	return err
}
