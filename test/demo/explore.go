package main

import "fmt"

// explore prints what else there is to try.
func (d *demo) explore() {
	f := d.federator
	d.say("It is yours now. Ctrl-C ends everything.")
	fmt.Fprintf(d.out, `
  In a browser, once (federator ui --kubeconfig olga.yaml gives another address):
    %[4]s

  In another terminal:
    cd %[1]s
    export PATH=$PWD/bin:$PATH KUBECONFIG=$PWD/hub.yaml KUBECACHEDIR=$PWD/cache

  The fleet, as Ann may read it:
    kubectl --kubeconfig fleet.yaml get pods -A -w
    kubectl --kubeconfig fleet.yaml get deploy -A -l member.federator.dev/region=eu
    federator members --server %[2]s -o wide

  A member, changed while the policies watch:
    kubectl patch fleetpolicy replicas --type merge -p '{"spec":{"suspend":false}}'
    kubectl --kubeconfig ap-1.yaml -n shop scale deployment web --replicas=1
    kubectl get actions -o wide
    kubectl --kubeconfig ap-1.yaml -n shop annotate deployment search federator.dev/protect=true
    kubectl --kubeconfig ap-1.yaml -n shop scale deployment search --replicas=1

  The hub, where members are Clusters and policies are objects:
    kubectl get clusters -A
    kubectl get policysources,fleetpolicies -o wide
    federator actions ack replicas              # if it is Halted
    federator actions plan memory --kubeconfig fleet.yaml --all
    kubectl get plans,approvals -o wide
    kubectl -n fleet delete cluster us-1

  A policy, changed by a commit; federator fetches every 10 seconds:
    $EDITOR policies/replicas.rego && git -C policies commit -am "Change it"
    kubectl get policysource platform -o yaml

  What federator logs: %[3]s
`, d.dir, f.admin, f.logFile, d.page.address)
}
