package clients

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
)

// helm runs Helm and takes all that it prints.
func helm(args ...string) act {
	return func(ctx context.Context, t *target) (answer, error) {
		stdout, stderr, err := t.run(ctx, filepath.Join(t.rig.tools, "helm"), t.named(args)...)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
			err = nil
		}
		return answer{text: with(brief(age.ReplaceAllString(times.ReplaceAllString(stdout, "TIME"), " AGE\n")), stderr)}, err
	}
}

// age is the last column of Helm's tables of resources.
var age = regexp.MustCompile(` \d+[smhd](\d+[smhd])?\n`)

// times are as Helm writes them.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+ \S+ \S+)?|(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} +\d+ \d\d:\d\d:\d\d \d{4}`)

var helmRows = []row{
	{
		act: "`helm list -A`", do: helm("list", "-A"),
		real: "`NAME NAMESPACE REVISION UPDATED STATUS CHART APP VERSION hello shop 1 TIME deployed greeting-1.2.3 4.5`", fleet: says("`NAME NAMESPACE REVISION UPDATED STATUS CHART APP VERSION hello shop 1 TIME deployed greeting-1.2.3 4.5`"), flat: same, members: same,
		why: "one of three: releases carry their names within, by which Helm keeps one; ask by namespace below /flat",
	},
	{
		act: "`helm list -n shop`", do: helm("list", "-n", "{shop}"),
		real: "`NAME NAMESPACE REVISION UPDATED STATUS CHART APP VERSION hello shop 1 TIME deployed greeting-1.2.3 4.5`", fleet: says("`NAME NAMESPACE REVISION UPDATED STATUS CHART APP VERSION hello shop 1 TIME deployed greeting-1.2.3 4.5`"), flat: same, members: same,
		why: "below /fleet one of three",
	},
	{
		act: "`helm status hello -n shop`", do: helm("status", "hello", "-n", "{shop}"),
		real: "`NAME: hello LAST DEPLOYED: TIME NAMESPACE: shop STATUS: deployed REVISION: 1 DESCRIPTION: Install complete RESOURCES: ==> v1/ConfigMap NAME DATA AGE greeting 1 AGE TEST SUITE: None`", fleet: says("`NAME: hello LAST DEPLOYED: TIME NAMESPACE: shop STATUS: deployed REVISION: 1 DESCRIPTION: Install complete RESOURCES: ==> v1/ConfigMap CLUSTER NAME DATA AGE acme/ap.1 greeting 1 AGE acme/eu-1 greeting 1 AGE acme/us-1 greeting 1 AGE TEST SUITE: None`"), flat: same, members: same,
	},
	{
		act: "`helm get manifest hello -n shop`", do: helm("get", "manifest", "hello", "-n", "{shop}"),
		real: "`--- # Source: greeting/templates/greeting.yaml apiVersion: v1 kind: ConfigMap metadata: {name: greeting} data: {text: hello}`", fleet: says("`--- # Source: greeting/templates/greeting.yaml apiVersion: v1 kind: ConfigMap metadata: {name: greeting} data: {text: hello}`"), flat: same, members: same,
	},
	{
		act: "`helm get values hello -n shop`", do: helm("get", "values", "hello", "-n", "{shop}"),
		real: "`USER-SUPPLIED VALUES: null`", fleet: says("`USER-SUPPLIED VALUES: null`"), flat: same, members: same,
	},
	{
		act: "`helm history hello -n shop`", do: helm("history", "hello", "-n", "{shop}"),
		real: "`REVISION UPDATED STATUS CHART APP VERSION DESCRIPTION 1 TIME deployed greeting-1.2.3 4.5 Install complete`", fleet: says("`REVISION UPDATED STATUS CHART APP VERSION DESCRIPTION 1 TIME deployed greeting-1.2.3 4.5 Install complete 1 TIME deployed greeting-1.2.3 4.5 Install complete 1 TIME deployed greeting-1.2.3 4.5 Install complete`"), flat: same, members: same,
	},
	{
		act: "`helm uninstall hello -n shop`", do: described("the release goes", helm("uninstall", "hello", "-n", "{shop}")),
		real: "the release goes", fleet: says("`level=WARN msg=\"skipping delete of resource because ownership could not be verified\" kind=ConfigMap name=greeting namespace=shop release=hello error=\"configmaps \\\"greeting\\\" is ambiguous, 3 members have it: …\" Error: uninstallation completed with 1 error(s): uninstall: Failed to purge the release: get: failed to get \"sh.helm.release.v1.hello.v1\": secrets \"sh.helm.release.v1.hello.v1\" is ambiguous, 3 members have it: …`"), flat: says("`Error: failed to delete release: hello`"), members: says("`Error: failed to delete release: hello`"),
	},
}
