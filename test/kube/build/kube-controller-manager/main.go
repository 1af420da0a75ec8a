// Command kube-controller-manager is the upstream controller manager, unchanged.
package main

import (
	"os"
	_ "time/tzdata" // CronJob time zones, as upstream's main has it

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	os.Exit(cli.Run(app.NewControllerManagerCommand()))
}
