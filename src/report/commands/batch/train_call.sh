if [[ $code -eq 0 || ($code -eq 75 && $cancelled == no && $TRAIN_ON_75 == yes) ]]; then
  run_training
  exit
fi
