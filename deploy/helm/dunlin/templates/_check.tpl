{{/* Fails if the values have a name that the chart does not know, or what is for the other mode. */}}
{{- define "dunlin.check" -}}
{{- $defaults := .Files.Get "files/values.yaml" | fromYaml -}}
{{- $others := .Files.Get "files/others.yaml" | fromYaml -}}
{{- $schema := .Files.Get "files/values.schema.json" | fromJson -}}
{{- $wrong := include "dunlin.unknown" (list "" "" (omit .Values "global") $defaults $others) -}}
{{- $fields := dict -}}
{{- range $field, $type := $schema.properties.databases.additionalProperties.properties -}}
{{- $below := dict -}}
{{- range $name, $_ := $type.properties }}{{ $below = set $below $name "" }}{{ end -}}
{{- $fields = set $fields $field $below -}}
{{- end -}}
{{- range $name, $options := .Values.databases -}}
{{- $wrong = print $wrong (include "dunlin.unknown" (list (printf "databases.%s" $name) "databases.NAME" $options $fields $others)) -}}
{{- end -}}
{{- $wrong = print $wrong (include "dunlin.globals" (list . $defaults $others)) -}}
{{- if $wrong -}}
{{- fail (printf "these are no values of this chart:%s\nvalues.yaml has all that are" $wrong) -}}
{{- end -}}
{{- $unused := ternary (dict
      "auth" "databases.NAME.passwordSecret"
      "config" "fields of databases.NAME"
      "dataStorage" "storage.data"
      "replica" "databases.NAME.replicas"
      "service" "databases.NAME.service"
      "terminationGracePeriodSeconds" "nodes.drainTimeoutSeconds"
    ) (dict
      "clusterName" "nothing"
      "databases" "config"
      "etcd" "nothing"
      "existingSecret" "auth.existingSecret"
      "nodes" "replica"
    ) (eq .Values.mode "cluster") -}}
{{- range $name, $instead := $unused -}}
{{- if ne (toJson (index $.Values $name)) (toJson (index $defaults $name)) -}}
{{- fail (printf "%s is for mode: %s. The mode %s has %s in its place" $name (ternary "server" "cluster" (eq $.Values.mode "cluster")) $.Values.mode $instead) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.mode "cluster") (eq (include "dunlin.nodesTls" .) "token") -}}
{{- $own := include "dunlin.ownToken" . | fromYaml -}}
{{- if and $own (not $own.isSecrets) -}}
{{- fail (printf "%s: nodes would have certificates of that token, and the chart's jobs check them with another one. Put that token into the secret that existingSecret names, as `token`, and take it away here; or give nodes a certificate of yours with nodes.tls.existingSecret" $own.from) -}}
{{- end -}}
{{- if has "--etcd-plain" .Values.nodes.extraArgs -}}
{{- fail "nodes.extraArgs: with --etcd-plain there is no authority for the certificates of nodes, and they do not start. Set nodes.tls.enabled: false, or give nodes a certificate of yours with nodes.tls.existingSecret" -}}
{{- end -}}
{{- end -}}
{{- $bus := int .Values.nodes.busPortOffset -}}
{{- /* With the default nodes choose another port, or do without: what is there goes on. */ -}}
{{- if and (eq .Values.mode "cluster") (gt $bus 0) (ne $bus 10000) -}}
{{- if and .Values.tls.enabled (eq $bus (int .Values.tls.portOffset)) -}}
{{- fail (printf "nodes.busPortOffset and tls.portOffset are both %d: clients with TLS and other copies need a port each, so give another number" $bus) -}}
{{- end -}}
{{- $ofNodes := ternary (list 8380 2379 2380) (list 8380) (eq (include "dunlin.ownEtcd" .) "true") -}}
{{- /* The further copies of a database on one node have the next ports, with TLS and for each other as well. */ -}}
{{- range $name, $database := .Values.databases -}}
{{- $first := add (int $database.port) $bus -}}
{{- $last := add $first (sub (int ($database.shards | default 1)) 1) -}}
{{- if gt $last 65535 -}}
{{- fail (printf "databases.%s.port is %d: copies of it would reach each other by port %d (nodes.busPortOffset), which is none. Give a smaller port" $name (int $database.port) $last) -}}
{{- end -}}
{{- range $port := $ofNodes -}}
{{- if and (le $first $port) (ge $last $port) -}}
{{- fail (printf "databases.%s.port is %d: copies of it would reach each other by port %d (nodes.busPortOffset), which nodes have: give another port" $name (int $database.port) $port) -}}
{{- end -}}
{{- end -}}
{{- range $other, $options := $.Values.databases -}}
{{- range $offset := ternary (list 0 (int $.Values.tls.portOffset)) (list 0) $.Values.tls.enabled -}}
{{- $low := add (int $options.port) $offset -}}
{{- $high := add $low (sub (int ($options.shards | default 1)) 1) -}}
{{- if and (le $low $last) (ge $high $first) -}}
{{- fail (printf "databases.%s.port is %d, so clients have its ports %d to %d. Copies of %s reach each other by %d to %d (nodes.busPortOffset): give another port" $other (int $options.port) $low $high $name $first $last) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Lines about values below `global`: root, defaults, names of other charts. Below another chart these are also values of its other
parts, so that only passwords are looked at, and only if servers or databases are open without them. */}}
{{- define "dunlin.globals" -}}
{{- $root := index . 0 -}}
{{- $given := $root.Values.global | default dict -}}
{{- $others := index . 2 -}}
{{- if $root.Chart.IsRoot -}}
{{- /* What Rancher and Replicated give to each chart. */ -}}
{{- $given = omit $given "cattle" "systemDefaultRegistry" "replicated" -}}
{{- include "dunlin.unknown" (list "global" "global" $given (index . 1).global $others) -}}
{{- else -}}
{{- $isOpen := not $root.Values.auth.enabled -}}
{{- if eq $root.Values.mode "cluster" -}}
{{- $isOpen = false -}}
{{- range $root.Values.databases }}{{ if not .passwordSecret }}{{ $isOpen = true }}{{ end }}{{ end -}}
{{- end -}}
{{- range $group, $value := pick $given "dunlin" "redis" "valkey" -}}
{{- range $name, $secret := (kindIs "map" $value | ternary $value dict) -}}
{{- if and $isOpen $secret (regexMatch "(?i)password|auth|secret" $name) -}}
{{- printf "\n  global.%s.%s: take %s" $group $name (index $others "global.redis.password") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Lines about values that the defaults do not have: path, the path in the table of other charts, values, defaults, that table. */}}
{{- define "dunlin.unknown" -}}
{{- $path := index . 0 -}}
{{- $place := index . 1 -}}
{{- $defaults := index . 3 -}}
{{- $others := index . 4 -}}
{{- /* What Kubernetes defines, and maps whose names are the user's. */ -}}
{{- $open := list "podSecurityContext" "securityContext" "livenessProbe" "readinessProbe" "startupProbe" "jobResources" "tls.certManager.issuerRef" "metrics.dashboards.labels" "metrics.serviceMonitor.tlsConfig" -}}
{{- range $name, $value := index . 2 -}}
{{- $full := trimPrefix "." (printf "%s.%s" $path $name) -}}
{{- $key := trimPrefix "." (printf "%s.%s" $place $name) -}}
{{- if not (hasKey $defaults $name) -}}
{{- $hints := list -}}
{{- if kindIs "map" $value -}}
{{- range $child := keys $value | sortAlpha -}}
{{- with index $others (printf "%s.%s" $key $child) }}{{ $hints = append $hints (printf "\n  %s.%s: take %s" $full $child .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with index $others $key }}{{ $hints = append $hints (printf "\n  %s: take %s" $full (eq $place "databases.NAME" | ternary (replace $place $path .) .)) }}{{ end -}}
{{- $near := list -}}
{{- range $known := keys $defaults | sortAlpha -}}
{{- if contains (lower $name) (lower $known) }}{{ $near = append $near (trimPrefix "." (printf "%s.%s" $path $known)) }}{{ end -}}
{{- end -}}
{{- $meant := empty $near | ternary "" (join " or " $near | printf ": is it %s?") -}}
{{- default (printf "\n  %s%s" $full $meant) (join "" $hints) -}}
{{- else if has $full $open -}}
{{- range $child := list "enabled" "customProbe" -}}
{{- if hasKey ($value | default dict) $child }}{{ printf "\n  %s.%s: take %s, with the fields that Kubernetes has" $full $child $full }}{{ end -}}
{{- end -}}
{{- else if and (kindIs "map" $value) (index $defaults $name) -}}
{{- include "dunlin.unknown" (list $full $key $value (index $defaults $name) $others) -}}
{{- end -}}
{{- end -}}
{{- end -}}
