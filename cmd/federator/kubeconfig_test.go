package main

import (
	"testing"

	"federator.dev/federator/test/kube"
)

func TestKubeconfig_WithAHub(t *testing.T) {
	hub := kube.StartTest(t, kube.Options{}).Hub
	for name, test := range map[string]func(*testing.T, *kube.Hub){
		"the authority of the chart is found":       chartAuthority,
		"the authority that a server made is found": generatedAuthority,
	} {
		t.Run(name, func(t *testing.T) { test(t, hub) })
	}
}
