package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Set at link time: -X main.buildVersion=… -X main.buildCommit=….
var buildVersion, buildCommit string

// versionInfo is what `federator version` prints.
type versionInfo struct {
	Version    string `json:"version"`
	Commit     string `json:"commit,omitempty"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Kubernetes string `json:"kubernetes"` // of the client libraries: the newest protobuf that is decoded
}

// version returns federator's own version, "devel" when it was built without
// one.
func version() string {
	if buildVersion != "" {
		return buildVersion
	}
	return "devel"
}

// userAgent is how this process names itself to API servers.
func userAgent() string { return "federator/" + version() }

func readVersion() versionInfo {
	v := versionInfo{
		Version: version(), Commit: buildCommit,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Kubernetes: "unknown",
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, dep := range info.Deps {
		// client-go v0.N.P is of Kubernetes 1.N.P.
		if dep.Path == "k8s.io/client-go" {
			v.Kubernetes = "v1." + strings.TrimPrefix(dep.Version, "v0.")
		}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v.Commit == "" {
			v.Commit = s.Value
		}
	}
	return v
}

func newVersionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print versions",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := readVersion()
			out := cmd.OutOrStdout()
			switch output {
			case "":
				commit := v.Commit
				if commit == "" {
					commit = "unknown"
				}
				_, err := fmt.Fprintf(out, "federator   %s\ncommit      %s\ngo          %s %s\nkubernetes  %s (client libraries)\n",
					v.Version, commit, v.Go, v.Platform, v.Kubernetes)
				return err
			case "json":
				enc := json.NewEncoder(out)
				enc.SetIndent("", "  ")
				return enc.Encode(v)
			default:
				return fmt.Errorf("--output %q is not json", output)
			}
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or a table when empty")
	return cmd
}
