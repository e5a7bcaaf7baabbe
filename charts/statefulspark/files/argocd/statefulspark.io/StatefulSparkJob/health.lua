-- Argo CD health of a StatefulSparkJob.
-- Copy it into argocd-cm as resource.customizations.health.statefulspark.io_StatefulSparkJob (docs/how-to/platform.md).
local health = { status = "Progressing", message = "Waiting for the operator" }
if obj.status == nil or obj.status.conditions == nil then
  return health
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  health.message = "Waiting for the operator to observe the change"
  return health
end
local degraded = false
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Stalled" and condition.status == "True" then
    health.status = "Degraded"
    health.message = condition.message
    return health
  end
  if condition.type == "Degraded" and condition.status == "True" then
    degraded = true
  end
end
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Ready" then
    health.message = condition.message
    if condition.status == "True" then
      health.status = "Healthy"
      if obj.status.lifecycleState == "SUSPENDED" then
        health.status = "Suspended"
      end
    elseif degraded and obj.status.transition == nil then
      health.status = "Degraded"
    end
  end
end
return health
