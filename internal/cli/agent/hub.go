package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/hubclient"
	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/hubrequests"
	"federator.dev/federator/pkg/agent/hubside"
)

const tokenHelp = `Make a token that the agent of one Member joins with, once, and write it to standard
output. It is for the Member of now: if that is deleted and created again, the token is
good for nothing. Who has the token can join as that member, so keep it as a password,
and not for long.

  federator agent token edge/shop-17 > token

Permissions needed on the hub: get members, and in federator's namespace get Secret
` + hubside.PublicSecret + ` and patch Secret ` + hubside.TokenSecret + `.`

// hubFlags say where federator is on the hub.
type hubFlags struct {
	hubclient.Flags

	namespace string
}

func (f *hubFlags) register(cmd *cobra.Command) {
	f.Register(cmd.Flags())
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", config.DefaultNamespace, "federator's `namespace` on the hub")
}

func tokenCommand(version string) *cobra.Command {
	f := hubFlags{Flags: hubclient.Flags{Version: version}}
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "token NAMESPACE/NAME",
		Short: "Make a token that the agent of a Member joins with, once",
		Long:  tokenHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.Open()
			if err != nil {
				return err
			}
			token, err := f.token(cmd.Context(), c, args[0], life)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	cmd.Flags().DurationVar(&life, "duration", hubside.DefaultTokenLife, "how long the token can be used")
	f.register(cmd)
	return cmd
}

func (f *hubFlags) token(ctx context.Context, c hubrequests.Client, member string, life time.Duration) (string, error) {
	namespace, name, both := strings.Cut(member, "/")
	if !both || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", exit.BadInput(fmt.Errorf("%q is not NAMESPACE/NAME of a Member", member))
	}
	gv := v1alpha1.SchemeGroupVersion()
	m := &v1alpha1.Member{}
	err := hubrequests.Do(ctx, c.CoreV1().RESTClient().Get().AbsPath("/apis", gv.Group, gv.Version, "namespaces", namespace, v1alpha1.Members, name).SetHeader("Accept", "application/json"), m)
	switch {
	case err != nil:
		return "", fmt.Errorf("Member %s: %w", member, err)
	case m.Spec.Agent == nil:
		return "", fmt.Errorf("Member %s has no agent: its spec.agent is not set", member)
	case m.DeletionTimestamp != nil:
		return "", fmt.Errorf("Member %s is being deleted", member)
	}
	return hubside.CreateToken(ctx, c, f.namespace, member, string(m.UID), life)
}

const rotateHelp = `Make a new CA for agents, or drop the old ones.

From then on the new CA signs the certificates of agents; the old ones stay trusted,
and federator's own certificate is of the oldest. Every agent gets the new CA when it
renews its certificate, which it does when half of its life is over. Once all have
(a day, or agents.certificateLife), the old ones can be dropped:

  federator agent rotate-ca
  federator agent rotate-ca --drop-old    # a day later

With --drop-old, agents that have not renewed since must join again with a token, and
what is connected by an old CA is disconnected. Where there is one CA only, it is an
error: there is nothing old. After the key of a CA has leaked, run both commands, one
right after the other, and make new tokens for all agents.

Permissions needed on the hub: get and update Secret ` + hubside.AuthoritySecret + ` in
federator's namespace, which has the keys of the CAs.`

func rotateCommand(version string) *cobra.Command {
	f := hubFlags{Flags: hubclient.Flags{Version: version}}
	var drop bool
	cmd := &cobra.Command{
		Use:   "rotate-ca",
		Short: "Make a new CA for agents, or drop the old ones",
		Long:  rotateHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.Open()
			if err != nil {
				return err
			}
			return hubside.RotateAuthority(cmd.Context(), c, f.namespace, drop)
		},
	}
	cmd.Flags().BoolVar(&drop, "drop-old", false, "trust the newest CA only")
	f.register(cmd)
	return cmd
}
